"""What a conversion can be asked for. No torch: the command line reads its defaults from here."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

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
