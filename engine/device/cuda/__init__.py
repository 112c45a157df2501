"""What is shared by those who write kernels in Gluon or in CUDA C++. Here without any of CUDA's packages."""


def is_of_bindings(error: ModuleNotFoundError) -> bool:
    """Whether what is missing is cuda-bindings, which a CPU lacks."""
    return (error.name or "").partition(".")[0] == "cuda"
