"""decode_step.cu on a CPU: its programs' threads as fibers of a library that g++ makes (cuda_on_cpu/)."""

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import torch

from tests.support.programs import required
from voicegate.engine.llm.cuda.resident import compiling
from voicegate.engine.llm.cuda.resident.arguments import Arguments
from voicegate.engine.llm.cuda.resident.plan import BOX, ResidentPlan

_EMULATOR = Path(__file__).with_name("cuda_on_cpu")
KERNEL = Path(compiling.__file__).with_name("kernel")
_SAID_BYTES = 500


class Stuck(AssertionError):
    """A launch that did not come to its end, and why."""


def map_on_cpu(matrix: torch.Tensor, num_rows: int, num_splits: int) -> tuple[int, ...]:
    """As cuda_on_cpu/instructions.cuh's load_box reads a tensor map."""
    num_all_rows, num_columns = matrix.shape
    words = (matrix.data_ptr(), num_all_rows, num_columns, num_rows, num_columns // BOX // num_splits)
    return (*words, *[0] * (16 - len(words)))


class EmulatedKernel:
    def __init__(self, sizes: Mapping[str, int | str], folder: Path, *, kernel: Path = KERNEL) -> None:
        """Made in `folder`, which is empty."""
        for source in (*kernel.iterdir(), *_EMULATOR.iterdir()):  # of one name the emulator's
            shutil.copy(source, folder / source.name)
        options = [f"-D{name}={value}" for name, value in sizes.items()]
        command = [
            required("g++"),
            "-O2",
            "-std=c++17",
            "-ffp-contract=off",
            "-fPIC",
            "-shared",
            "-w",
            "-Wno-psabi",
            *options,
        ]
        library = folder / "emulated.so"
        subprocess.run([*command, "-o", library, folder / "emulator.cpp"], check=True)
        self._emulate = ctypes.CDLL(str(library)).emulate

    def launch(self, arguments: Arguments, plan: ResidentPlan, *, seed: int) -> None:
        """`seed`: of the order in which threads go on, and what they see. Raises Stuck."""
        said = ctypes.create_string_buffer(_SAID_BYTES)
        is_stuck = self._emulate(
            ctypes.byref(arguments), plan.num_programs, plan.shared_memory_bytes, seed, said, _SAID_BYTES
        )
        if is_stuck:
            raise Stuck(said.value.decode())
