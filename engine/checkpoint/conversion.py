"""A conversion from outside: what it is asked for, what it tells of itself, how it fails. No torch, no terminal.

The command line reads its defaults from here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

DTYPE_NAMES: Final = ("fp32", "bf16", "fp16")
DEFAULT_LLM_FILE: Final = "llm.pt"


class Decoding(StrEnum):
    """How the LLM of CosyVoice2 is to be sampled, and where its speech ends; docs/models.md has both."""

    ORIGINAL = "original"  # as its authors' code does
    DEPLOYED = "deployed"  # as the TensorRT-LLM recipe does


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Dtypes are of DTYPE_NAMES."""

    llm_file: str = DEFAULT_LLM_FILE
    # Half the bytes of float32 on the disk and, on a CPU, in every decode step. fp16 rather than bf16: it rounds eight
    # times finer, the weights fit its range (else the conversion says so), and a GPU's bf16 run can still narrow them.
    llm_dtype: str = "fp16"
    # float32: the ODE adds up ten steps, and samples depend on phases; rounding here is not averaged out by sampling.
    flow_dtype: str = "fp32"
    vocoder_dtype: str = "fp32"
    name: str | None = None  # in model.json; by default the source directory's
    merged_hf_dir: Path | None = None
    decoding: Decoding = Decoding.ORIGINAL

    def dtype_of(self, part: str) -> str:
        return {"llm": self.llm_dtype, "flow": self.flow_dtype, "vocoder": self.vocoder_dtype}[part]


class CheckpointError(ValueError):
    """The upstream directory cannot be converted, or the place to write to is not fit for it."""


class HoldsMoreThanData(CheckpointError):
    """A pickle names classes or functions, which loading it would call."""


class UnfitTensors(CheckpointError):
    """A weights file has not the tensors that its configuration asks for; `faults` lists each, one a line."""

    def __init__(self, summary: str, faults: Sequence[str]) -> None:
        super().__init__(summary)
        self.faults = tuple(faults)


class Progress(Protocol):
    """Parts come one after the other: begin, advance any number of times, finish."""

    def begin(self, part: str, num_bytes: int) -> None:
        """`num_bytes`: what `advance` will add up to; 0 where that is not known."""

    def advance(self, num_bytes: int) -> None:
        """This much more of the part is done."""

    def finish(self, outcome: str) -> None:
        """The part is done; `outcome` says how, in a few words."""

    def remark(self, text: str) -> None:
        """Something that the user should know, between parts or within one."""
