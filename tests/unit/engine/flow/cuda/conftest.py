"""The CUDA flow's kernels on a CPU, by Triton's interpreter."""

from tests.support.triton_interpreter import uses_interpreter

# Where Triton does not exist (macOS) these modules cannot even be imported.
collect_ignore_glob = [] if uses_interpreter() else ["test_*.py"]
