"""What is shared by those who write kernels in Gluon or in CUDA C++. Here without any of CUDA's packages."""


def is_mistake(error: ImportError | RuntimeError) -> bool:
    """Of making a kernel in CUDA C++: something of ours is missing. Else the driver or NVRTC refuses, or cuda-bindings
    lack: a CPU has none, an older torch has others. Then one does without.
    """
    return isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "cuda"
