"""A kernel in CUDA C++ on a CPU: its programs' threads as fibers of a library that g++ makes (cuda_on_cpu/)."""

import ctypes
import math
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import torch

from tests.support.programs import required
from voicegate.engine.llm.cuda.resident.plan import BOX

_EMULATOR = Path(__file__).with_name("cuda_on_cpu")
_SAID_BYTES = 500


class Stuck(AssertionError):
    """A launch that did not come to its end, and why."""


def map_on_cpu(matrix: torch.Tensor, num_rows: int, num_splits: int) -> tuple[int, ...]:
    """As load_box of cuda_on_cpu/decode_step reads a tensor map."""
    num_all_rows, num_columns = matrix.shape
    words = (matrix.data_ptr(), num_all_rows, num_columns, num_rows, num_columns // BOX // num_splits)
    return (*words, *[0] * (16 - len(words)))


class _Front(ctypes.Structure):
    """emulator.cpp's."""

    _fields_ = (("to", ctypes.c_void_p), ("source", ctypes.c_void_p), ("num_bytes", ctypes.c_size_t))


class EmulatedKernel:
    def __init__(self, source: Path, folder: Path, *, macros: Mapping[str, int | str]) -> None:
        """Made in `folder`, which is empty. The kernel is named as its source, whose headers lie beside it."""
        for file in (*source.parent.iterdir(), *_EMULATOR.glob("emulator.*"), *(_EMULATOR / source.stem).iterdir()):
            shutil.copy(file, folder / file.name)  # of one name the emulator's
        macros = {**macros, "KERNEL_SOURCE": f'"{source.name}"', "KERNEL_NAME": source.stem}
        options = [f"-D{name}={value}" for name, value in macros.items()]
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

    def launch(
        self,
        arguments: ctypes.Structure,
        programs: tuple[int, int, int],
        *,
        shared_memory_bytes: int,
        seed: int,
        num_together: int | None = None,
        late: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> None:
        """`seed`: of the order in which threads go on, and what they see. Raises Stuck.

        `num_together`: how many programs run at once; None: all. `late`: memory, and what a kernel that still runs when
        this one begins has stored there at its end.
        """
        said = ctypes.create_string_buffer(_SAID_BYTES)
        front = _Front() if late is None else _Front(late[0].data_ptr(), late[1].data_ptr(), late[0].nbytes)
        is_stuck = self._emulate(
            ctypes.byref(arguments),
            ctypes.byref(front),
            (ctypes.c_int * 3)(*programs),
            num_together or math.prod(programs),
            shared_memory_bytes,
            seed,
            said,
            _SAID_BYTES,
        )
        if is_stuck:
            raise Stuck(said.value.decode())
