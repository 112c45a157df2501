"""However frames arrive and whoever else is in the batch, a stream's samples are those of the whole at once."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import golden
from tests.support.vocoder import CPU, chunks_of, feed_together, golden_excitation, golden_model, offline, plain_runner
from voicegate.engine import units
from voicegate.engine.vocoder.backend import (
    VocoderJob,
    VocoderStream,
    VocoderStreamEnded,
    VocoderStreamsExhausted,
    VocoderStreamTooLong,
)
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.vocoder.torch.renderer import TorchRenderer

MAX_FRAMES = 60
MAX_STREAMS = 4
# Two correct float32 implementations differ by 2e-5 on these weights (golden README).
TOLERANCE = 1e-4


def create_runner(*, max_frames: int = MAX_FRAMES, dtype: torch.dtype = torch.float32) -> VocoderRunner:
    model = golden_model(max_frames * units.SAMPLES_PER_FRAME)
    return plain_runner(model, max_streams=MAX_STREAMS, dtype=dtype)


def poisonable_runner() -> tuple[VocoderRunner, list[torch.Tensor]]:
    """And what it keeps of its slots, [slots, ...] each."""
    model = golden_model(MAX_FRAMES * units.SAMPLES_PER_FRAME)
    renderer = TorchRenderer(model, max_streams=MAX_STREAMS)
    runner = VocoderRunner(model, renderer, max_streams=MAX_STREAMS)
    return runner, [renderer._state.rows, renderer._exact_state.rows]


@pytest.fixture(scope="module")
def shared_runner() -> VocoderRunner:
    return create_runner()


def golden_mel() -> torch.Tensor:
    return torch.from_numpy(golden.load_arrays("hift.npz")["mel"][0])


MEL = golden_mel()


def feed(runner: VocoderRunner, stream: VocoderStream, mel: torch.Tensor, pieces: Sequence[int]) -> list[torch.Tensor]:
    """One job a piece, the last one final; `pieces` add up to the mel's frames."""
    chunks = torch.split(mel, list(pieces), dim=1)
    return [
        runner.run([VocoderJob(stream, chunk, is_final=number == len(chunks))])[0]
        for number, chunk in enumerate(chunks, 1)
    ]


def render(runner: VocoderRunner, mel: torch.Tensor, pieces: Sequence[int]) -> torch.Tensor:
    stream = runner.open()
    samples = torch.cat(feed(runner, stream, mel, pieces))
    runner.close(stream)
    return samples


def assert_same(samples: torch.Tensor, expected: torch.Tensor) -> None:
    assert samples.shape == expected.shape
    assert torch.allclose(samples, expected, atol=TOLERANCE, rtol=0)


# --- splits -----------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(pieces=st.lists(st.integers(0, 14), min_size=1, max_size=8).filter(lambda sizes: 0 < sum(sizes) <= MAX_FRAMES))
def test_any_split_equals_the_whole(shared_runner: VocoderRunner, pieces: list[int]) -> None:
    mel = MEL[:, : sum(pieces)]
    assert_same(render(shared_runner, mel, pieces), offline(shared_runner, mel, is_final=True))


@pytest.mark.parametrize("num_frames", range(1, 9))
@pytest.mark.parametrize("ends_with_nothing", [False, True])
def test_short_lives_frame_by_frame(shared_runner: VocoderRunner, num_frames: int, ends_with_nothing: bool) -> None:
    mel = MEL[:, :num_frames]
    expected = offline(shared_runner, mel, is_final=True)
    assert expected.shape == (num_frames * units.SAMPLES_PER_FRAME,)
    assert_same(render(shared_runner, mel, [1] * num_frames + [0] * ends_with_nothing), expected)
    assert_same(render(shared_runner, mel, [num_frames]), expected)


def test_a_life_without_frames_is_silent(shared_runner: VocoderRunner) -> None:
    assert render(shared_runner, MEL[:, :0], [0, 0]).shape == (0,)


def test_everything_that_is_final_is_given_out(shared_runner: VocoderRunner) -> None:
    stream = shared_runner.open()
    pieces = [1, 3, 1, 0, 20, 7, 9]
    outputs = feed(shared_runner, stream, MEL[:, : sum(pieces)], pieces)
    shared_runner.close(stream)
    given_out = list(itertools.accumulate(len(samples) for samples in outputs))
    known = list(itertools.accumulate(pieces))
    expected = [max(0, (frames - 4) * 480 - 4) for frames in known[:-1]] + [known[-1] * 480]
    assert given_out == expected


def test_upstreams_unfinished_output_is_a_prefix(shared_runner: VocoderRunner) -> None:
    whole = offline(shared_runner, MEL, is_final=True)
    unfinished = offline(shared_runner, MEL[:, :30], is_final=False)
    assert_same(unfinished, whole[: (30 - 8) * units.SAMPLES_PER_FRAME])
    for num_frames in (1, 7, 8):
        assert len(offline(shared_runner, MEL[:, :num_frames], is_final=False)) == 0


# --- batches ----------------------------------------------------------------------------------------------


PLAN = st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(lambda sizes: 0 < sum(sizes) <= MAX_FRAMES)


@settings(max_examples=10)
@given(plans=st.lists(PLAN, min_size=2, max_size=MAX_STREAMS))
def test_a_batch_equals_each_stream_alone(shared_runner: VocoderRunner, plans: list[list[int]]) -> None:
    mels = [MEL.roll(7 * index, dims=1)[:, : sum(plan)] for index, plan in enumerate(plans)]
    together = feed_together(shared_runner, chunks_of(mels, plans))
    for mel, samples in zip(mels, map(torch.cat, together), strict=True):
        assert_same(samples, offline(shared_runner, mel, is_final=True))


def test_first_middle_and_final_in_one_padded_call(
    shared_runner: VocoderRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicegate.engine.vocoder.torch.renderer.MIN_ROW_FILL", 0.0)  # one call, however uneven
    plans = [[10, 5, 30], [1, 20, 3], [5, 44, 0], [0, 6, 1]]
    mels = [MEL.roll(5 * index, dims=1)[:, : sum(plan)] for index, plan in enumerate(plans)]
    together = feed_together(shared_runner, chunks_of(mels, plans))
    for mel, samples in zip(mels, map(torch.cat, together), strict=True):
        assert_same(samples, offline(shared_runner, mel, is_final=True))


# --- slots ------------------------------------------------------------------------------------------------


def test_a_poisoned_slot_reaches_neither_its_successor_nor_its_neighbours() -> None:
    runner, kept_of_slots = poisonable_runner()
    kept, leaving = runner.open(), runner.open()
    first, _ = runner.run([VocoderJob(stream, MEL[:, :20], is_final=False) for stream in (kept, leaving)])
    freed_slot = leaving.slot
    runner.close(leaving)
    for rows in kept_of_slots:
        rows[freed_slot] = torch.nan
    successor = runner.open()
    assert successor.slot == freed_slot
    rest, fresh = runner.run(
        [VocoderJob(kept, MEL[:, 20:], is_final=True), VocoderJob(successor, MEL[:, :30], is_final=True)]
    )
    assert_same(torch.cat((first, rest)), offline(runner, MEL, is_final=True))
    assert_same(fresh, offline(runner, MEL[:, :30], is_final=True))


def test_slots_run_out_and_come_back_once(shared_runner: VocoderRunner) -> None:
    streams = [shared_runner.open() for _ in range(MAX_STREAMS)]
    with pytest.raises(VocoderStreamsExhausted, match="4"):
        shared_runner.open()
    shared_runner.close(streams[0])
    shared_runner.close(streams[0])
    streams[0] = shared_runner.open()
    with pytest.raises(VocoderStreamsExhausted):
        shared_runner.open()
    for stream in streams:
        shared_runner.close(stream)


# --- refusals ---------------------------------------------------------------------------------------------


def test_a_refusal_leaves_all_streams_as_they_were() -> None:
    runner = create_runner(max_frames=20)
    long, other = runner.open(), runner.open()
    mel = MEL[:, :20]
    outputs = [runner.run([VocoderJob(long, mel[:, :12], is_final=False)])[0]]
    with pytest.raises(VocoderStreamTooLong, match="21 mel frames"):
        runner.run([VocoderJob(other, mel[:, :5], is_final=False), VocoderJob(long, MEL[:, 12:21], is_final=True)])
    with pytest.raises(VocoderStreamTooLong):
        offline(runner, MEL[:, :21], is_final=True)
    outputs += runner.run([VocoderJob(long, mel[:, 12:], is_final=True)])
    expected = offline(runner, mel, is_final=True)
    assert_same(torch.cat(outputs), expected)
    assert_same(runner.run([VocoderJob(other, mel, is_final=True)])[0], expected)


def test_ended_and_closed_streams_take_no_more(shared_runner: VocoderRunner) -> None:
    for num_frames in (0, 6):
        stream = shared_runner.open()
        shared_runner.run([VocoderJob(stream, MEL[:, :num_frames], is_final=True)])
        with pytest.raises(VocoderStreamEnded):
            shared_runner.run([VocoderJob(stream, MEL[:, :1], is_final=False)])
        shared_runner.close(stream)
    stream = shared_runner.open()
    shared_runner.close(stream)
    with pytest.raises(VocoderStreamEnded):
        shared_runner.run([VocoderJob(stream, MEL[:, :1], is_final=False)])


def test_malformed_jobs_are_refused(shared_runner: VocoderRunner) -> None:
    stream = shared_runner.open()
    with pytest.raises(ValueError, match="one job in a call"):
        shared_runner.run([VocoderJob(stream, MEL[:, :1], is_final=False)] * 2)
    for mel in (MEL.T, MEL[None]):
        with pytest.raises(ValueError, match="mel is"):
            shared_runner.run([VocoderJob(stream, mel, is_final=False)])
    shared_runner.close(stream)


def test_a_short_excitation_table_is_refused() -> None:
    with pytest.raises(ValueError, match="10 rows"):
        VocoderModel(
            golden.golden_vocoder_config(),
            golden.golden_state_dict("hift"),
            max_samples=11,
            device=CPU,
            excitation=golden_excitation(10),
        )


def test_without_a_table_upstreams_is_drawn() -> None:
    config, state_dict = golden.golden_vocoder_config(), golden.golden_state_dict("hift")
    runner = plain_runner(VocoderModel(config, state_dict, max_samples=9600, device=CPU))
    mel = MEL[:, :20]
    assert_same(render(runner, mel, [9, 11]), offline(runner, mel, is_final=True))


def test_bfloat16_is_close() -> None:
    expected = offline(create_runner(), MEL, is_final=True)
    samples = render(create_runner(dtype=torch.bfloat16), MEL, [20, 40])
    assert samples.dtype == torch.float32
    assert torch.corrcoef(torch.stack((samples, expected)))[0, 1] > 0.97
