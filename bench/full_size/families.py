"""The generated checkpoints by family: what of them differs before there are weights."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, assert_never

from voicegate.bench.full_size.source import Sizes, raw_model_json, write_source
from voicegate.bench.full_size.stepaudio2 import StepAudio2Sizes, stepaudio2_raw_json, write_stepaudio2_source
from voicegate.engine.checkpoint.conversion import CheckpointError, Decoding
from voicegate.engine.checkpoint.tokenizer import special_tokens
from voicegate.engine.families.stepaudio2.checkpoint.reading import SPECIAL_TOKENS
from voicegate.engine.model.config import COSYVOICE3
from voicegate.engine.model.upstream_kinds import COSYVOICE2_STEPAUDIO2

AnySizes = Sizes | StepAudio2Sizes

FULL_SIZES: Final[Mapping[str, AnySizes]] = {
    COSYVOICE3: Sizes(),
    COSYVOICE2_STEPAUDIO2: StepAudio2Sizes(),
}


def raw_json(sizes: AnySizes, *, name: str, decoding: Decoding) -> dict[str, Any]:
    """model.json. Raises CheckpointError for a decoding that the family has not."""
    match sizes:
        case Sizes():
            if decoding is not Decoding.ORIGINAL:
                raise CheckpointError(f"decoding {decoding} is of CosyVoice2's LLM")
            return raw_model_json(sizes, name=name)
        case StepAudio2Sizes():
            return stepaudio2_raw_json(sizes, name=name, decoding=decoding)
        case _:
            assert_never(sizes)


def special_tokens_of(sizes: AnySizes) -> Sequence[str]:
    return SPECIAL_TOKENS if isinstance(sizes, StepAudio2Sizes) else special_tokens()


def write_any_source(directory: Path, sizes: AnySizes, *, never_stop: bool) -> Iterator[str]:
    """Upstream's layout, file by file; yields their names."""
    match sizes:
        case Sizes():
            return write_source(directory, sizes, never_stop=never_stop)
        case StepAudio2Sizes():
            return write_stepaudio2_source(directory, sizes, never_stop=never_stop)
        case _:
            assert_never(sizes)
