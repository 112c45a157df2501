"""A small model of the second family, LLM and token2wav, with generated weights that end speech with its text."""

from dataclasses import replace
from pathlib import Path

from tests.support.upstream_stepaudio2 import SMALL_STEPAUDIO2
from voicegate.bench.full_size.engine_dir import Ending, make_engine_dir
from voicegate.engine.checkpoint.conversion import ConvertOptions, Decoding
from voicegate.engine.config import EngineConfig

# With room for the tokenizer's merges, and layers behind the one that counts.
_SIZES = replace(SMALL_STEPAUDIO2, vocab_entries=1_100, text_rows=1_400, hidden=64, layers=3)
VOICES = ("generated-1", "generated-2")  # prompts of 3 and of 4.4 s


def write_second_family(model_dir: Path, decoding: Decoding = Decoding.ORIGINAL) -> Path:
    """With the two shortest of the voices that are made."""
    make_engine_dir(model_dir, _SIZES, ConvertOptions(decoding=decoding), Ending.NATURAL)
    for path in (model_dir / "voices").iterdir():
        if path.stem not in VOICES:
            path.unlink()
    return model_dir


def config_of(model_dir: Path) -> EngineConfig:
    """On a CPU; what is said depends on the text alone, however late it comes."""
    return EngineConfig(model_dir, device="cpu", threads=1, max_active_clauses=8, lead_ms=3_600_000, stall_ms=0)
