"""Step-Audio2's vocoder for many streams: each as if alone, and never a sample too few."""

from collections.abc import Sequence

import pytest
import torch

from tests.support.stepaudio2 import golden_vocoder, normal
from tests.support.vocoder import feed_together
from voicegate.engine import units
from voicegate.engine.families.stepaudio2.vocoder.bucket_caller import CallConfig
from voicegate.engine.vocoder.backend import (
    VocoderJob,
    VocoderStreamEnded,
    VocoderStreamsExhausted,
    VocoderStreamTooLong,
)
from voicegate.engine.vocoder.runner import VocoderRunner

FRAME = units.SAMPLES_PER_FRAME


def mel_of(name: str, num_frames: int) -> torch.Tensor:
    return normal(f"vocoder.{name}", (80, num_frames))


def rendered(vocoder: VocoderRunner, mel: torch.Tensor, parts: Sequence[int]) -> list[torch.Tensor]:
    """Renders each part of the stream's mel, the last one final."""
    return feed_together(vocoder, [mel.split(list(parts), dim=1)])[0]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([12, 20, 10], [4, 20, 18]),
        ([30], [30]),  # the only one
        ([3], [3]),
        ([8, 10], [0, 18]),  # too few to hold 8 back and say anything
        ([3, 5, 4, 2], [0, 0, 4, 10]),
        ([12, 1, 0, 2], [4, 1, 0, 10]),
        ([12, 0], [4, 8]),  # what was held back leaves as it is
        ([5, 0], [0, 5]),
        ([0], [0]),
    ],
)
def test_samples_are_as_many_as_frames_have(parts: list[int], expected: list[int]) -> None:
    vocoder = golden_vocoder()
    assert vocoder.held_back_frames == 8
    samples = rendered(vocoder, mel_of("any", sum(parts)), parts)
    assert [len(each) for each in samples] == [FRAME * frames for frames in expected]
    assert all(each.isfinite().all() for each in samples)


def test_waiting_frames_are_heard_with_the_next() -> None:
    vocoder, mel = golden_vocoder(), mel_of("waiting", 20)
    pieces = torch.cat(rendered(vocoder, mel, [3, 4, 13]))
    assert torch.equal(pieces, torch.cat(rendered(vocoder, mel, [20])))


def test_a_place_that_was_used_is_as_new() -> None:
    vocoder, mel = golden_vocoder(max_streams=1), mel_of("reused", 40)
    left = vocoder.open()
    vocoder.run([VocoderJob(left, mel_of("left", 30), False)])
    vocoder.close(left)
    expected = torch.cat(rendered(golden_vocoder(max_streams=1), mel, [20, 20]))
    assert torch.equal(torch.cat(rendered(vocoder, mel, [20, 20])), expected)


def test_what_is_refused_leaves_streams_as_they_were() -> None:
    vocoder = golden_vocoder(max_frames=40, max_streams=1)
    stream = vocoder.open()
    with pytest.raises(VocoderStreamsExhausted):
        vocoder.open()
    vocoder.run([VocoderJob(stream, mel_of("first", 30), False)])
    with pytest.raises(VocoderStreamTooLong, match="41 mel frames"):
        vocoder.run([VocoderJob(stream, mel_of("more", 11), True)])
    (samples,) = vocoder.run([VocoderJob(stream, mel_of("rest", 10), True)])
    assert len(samples) == 18 * FRAME
    with pytest.raises(VocoderStreamEnded):
        vocoder.run([VocoderJob(stream, mel_of("rest", 1), False)])


CALLS = CallConfig(frame_buckets=(12, 40), row_buckets=(1, 2), has_graphs=False)


@pytest.mark.parametrize("calls", [None, CALLS])
def test_streams_together_are_what_they_are_alone(calls: CallConfig | None) -> None:
    """In fixed buffers: three rows where two fit, any bucket and beyond, and what other calls left there."""
    streams = {"a": [10, 20, 4], "b": [12, 31, 1], "c": [9, 50, 30]}
    mels = {name: mel_of(name, sum(parts)) for name, parts in streams.items()}
    vocoder = golden_vocoder(calls=calls)
    assert vocoder.graphs.num_buckets == (4 if calls else 0)
    vocoder.graphs.capture()  # runs padding alone
    together = feed_together(vocoder, [mels[name].split(parts, dim=1) for name, parts in streams.items()])
    for (name, parts), samples in zip(streams.items(), together, strict=True):
        alone = torch.cat(rendered(golden_vocoder(), mels[name], parts))
        torch.testing.assert_close(torch.cat(samples), alone, rtol=0, atol=1e-4)


def test_graphs_need_a_gpu() -> None:
    with pytest.raises(ValueError, match="CUDA graphs were asked for on cpu"):
        golden_vocoder(calls=CallConfig())
    with pytest.raises(ValueError, match=r"row_buckets are \(2, 2\)"):
        CallConfig(row_buckets=(2, 2))
