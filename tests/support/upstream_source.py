"""Small checkpoints in upstream's layout, and a progress that remembers what it was told."""

from pathlib import Path

from voicegate.bench.full_size.source import Sizes, write_source

# Quick to write and to convert: few text ids, one layer of everything.
SMALL = Sizes(
    vocab_entries=300,
    text_rows=600,
    hidden=32,
    intermediate=48,
    layers=1,
    heads=2,
    kv_heads=1,
    flow_channels=16,
    estimator_dim=32,
    estimator_depth=1,
    estimator_heads=1,
    estimator_head_dim=32,
    vocoder_channels=16,
    f0_channels=16,
)

# Sizes that the golden data were made with (tests/golden/cosyvoice3/tiny_config.json).
GOLDEN = Sizes(
    hidden=64,
    intermediate=128,
    layers=2,
    heads=4,
    kv_heads=2,
    flow_channels=64,
    estimator_dim=64,
    estimator_depth=2,
    estimator_heads=2,
    estimator_head_dim=32,
    vocoder_channels=32,
    f0_channels=32,
)


def make_source(directory: Path, sizes: Sizes = SMALL) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for _ in write_source(directory, sizes):
        pass
    return directory


class RecordedProgress:
    """Implements engine.checkpoint.progress.Progress."""

    def __init__(self, *, fails_at: str | None = None) -> None:
        """`fails_at`: a part in whose middle the conversion is to die."""
        self.outcomes: dict[str, str] = {}
        self.remarks: list[str] = []
        self._part = ""
        self._fails_at = fails_at

    def begin(self, part: str, num_bytes: int) -> None:
        self._part = part

    def advance(self, num_bytes: int) -> None:
        if self._part == self._fails_at:
            raise KilledHere

    def finish(self, outcome: str) -> None:
        self.outcomes[self._part] = outcome

    def remark(self, text: str) -> None:
        self.remarks.append(text)


class KilledHere(BaseException):
    """As a signal would end the process: no `except Exception` sees it."""
