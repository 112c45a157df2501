"""The benchmarks import the kernels, which on a CPU are the interpreter's."""

from tests.support.triton_interpreter import use_interpreter

use_interpreter()
