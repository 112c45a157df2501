"""CUDA kernels on a CPU, by Triton's interpreter. Where Triton does not exist (macOS) their tests are left out."""

from pathlib import Path

from tests.support.triton_interpreter import uses_interpreter

_BESIDE_KERNELS = ("backends/tensorrt/flow/test_estimator.py", "backends/tensorrt/vocoder/test_filter.py")
# At the import: pytest asks `pytest_ignore_collect` of no file that it is given by name.
_HAS_TRITON = uses_interpreter()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    needs_triton = collection_path.name == "cuda" or collection_path.as_posix().endswith(_BESIDE_KERNELS)
    return True if needs_triton and not _HAS_TRITON else None
