"""The CUDA vocoder's kernels on a CPU, by Triton's interpreter."""

from tests.support.triton_interpreter import use_interpreter

use_interpreter()
