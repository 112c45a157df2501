"""Small checkpoints of the second family, in upstream's layouts."""

from pathlib import Path

from voicegate.bench.full_size.stepaudio2 import StepAudio2Sizes, write_stepaudio2_source

# Sizes of the second family; every text id of the tests' sizes fits its merged vocabulary.
SMALL_STEPAUDIO2 = StepAudio2Sizes(
    vocab_entries=300,
    text_rows=600,
    hidden=32,
    intermediate=48,
    layers=1,
    heads=2,
    kv_heads=1,
    encoder_dim=16,
    encoder_layers=1,
    up_layers=1,
    encoder_heads=2,
    encoder_units=24,
    estimator_dim=16,
    estimator_depth=1,
    estimator_heads=2,
    estimator_head_dim=8,
    vocoder_channels=16,
    f0_channels=16,
)


def make_stepaudio2_source(
    directory: Path, sizes: StepAudio2Sizes = SMALL_STEPAUDIO2, *, is_merged: bool = True
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for _ in write_stepaudio2_source(directory, sizes, is_merged=is_merged):
        pass
    return directory
