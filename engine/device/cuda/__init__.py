"""What is shared by those who write kernels in Gluon or in CUDA C++. Here without any of CUDA's packages."""


def is_of_bindings(error: ImportError) -> bool:
    """Whether what is missing is cuda-bindings or of it: a CPU lacks them, and an older torch has others."""
    return (error.name or "").partition(".")[0] == "cuda"
