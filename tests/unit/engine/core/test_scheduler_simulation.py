"""The policy against simulated load, 1 to 1000 streams: nobody starves or runs dry, newcomers are heard soon."""

import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scheduler_simulation import SimulatedStream, Simulation
from voicegate.engine.core.policy import Limits
from voicegate.engine.flow.batch_size import BatchSize
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK

LANES = Limits(flow_batch=BatchSize(38, 1700), calm_flow_batch=BatchSize(96, 4200), is_concurrent=True)
ONE_PROCESSOR = Limits(flow_batch=BatchSize(4, 200))


def staggered(num_streams: int, *, over_s: float, num_tokens: int = 150) -> list[SimulatedStream]:
    return [SimulatedStream(key, key * over_s / num_streams, num_tokens) for key in range(num_streams)]


@pytest.mark.parametrize("num_streams", [1, 40, 400])
def test_staggered_streams_never_run_dry_and_start_soon(num_streams: int) -> None:
    streams = staggered(num_streams, over_s=3.0, num_tokens=75)
    Simulation(streams, LANES).run(until_s=60.0)
    assert all(stream.is_done for stream in streams)
    assert max(stream.underrun_s for stream in streams) <= 0.0
    waits_s = sorted(stream.first_audio_s - stream.arrives_s for stream in streams if stream.first_audio_s is not None)
    assert len(waits_s) == num_streams
    assert waits_s[int(0.95 * (num_streams - 1))] < 0.15


def test_a_burst_of_a_thousand_is_served_in_the_order_of_arrival_and_nobody_starves() -> None:
    streams = [SimulatedStream(key, key * 1e-4, 35) for key in range(1000)]
    Simulation(streams, LANES).run(until_s=120.0)
    assert all(stream.is_done for stream in streams)
    starts = [stream.first_audio_s for stream in streams]
    assert starts == sorted(starts, key=lambda start: start or 0.0)


def test_newcomers_do_not_run_the_listeners_dry() -> None:
    """A burst of newcomers meets listeners at the edge: those are served in time, the newcomers wait for it."""
    listeners = staggered(64, over_s=2.0, num_tokens=150)
    newcomers = [SimulatedStream(1000 + key, 3.0, 75) for key in range(150)]
    Simulation([*listeners, *newcomers], LANES).run(until_s=60.0)
    assert all(stream.is_done for stream in (*listeners, *newcomers))
    assert max(stream.underrun_s for stream in listeners) <= 0.0


def test_a_stream_whose_agent_stalls_disturbs_nobody() -> None:
    streams = staggered(100, over_s=2.0)
    for stream in streams[::10]:
        stream.stalls = {20: 5.0}
    Simulation(streams, LANES).run(until_s=60.0)
    assert all(stream.is_done for stream in streams)
    assert max(stream.underrun_s for stream in streams if not stream.stalls) <= 0.0


def test_short_blocks_share_batches_with_whole_ones() -> None:
    """Every third utterance has come to its last block, of 2 to 48 frames: more of them fit than whole ones."""
    rng = random.Random(0)
    streams = [
        SimulatedStream(key, 0.0, 10 + (25 if key % 3 else rng.randrange(1, 25)), max_lead_s=60.0) for key in range(400)
    ]
    simulation = Simulation(streams, LANES)
    simulation.run(until_s=60.0)
    assert all(stream.is_done for stream in streams)
    ragged = [frames for frames in simulation.begun if min(frames) < FRAMES_PER_BLOCK]
    assert max(map(len, ragged)) == LANES.flow_batch.num_rows, "more than the 34 whole ones"
    size = LANES.flow_batch
    filled = [max(len(frames) / size.num_rows, sum(frames) / size.num_frames) for frames in ragged]
    assert median(filled) > 0.95, "little is left empty but at the beginning, while tokens are made, and at the end"


def test_one_processor_speaks_first_chunks_first() -> None:
    streams = staggered(8, over_s=0.5, num_tokens=100)
    Simulation(streams, ONE_PROCESSOR).run(until_s=60.0)
    assert all(stream.is_done for stream in streams)
    assert max(stream.underrun_s for stream in streams) <= 0.0


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), num_streams=st.integers(1, 60), is_concurrent=st.booleans())
def test_whatever_comes_everybody_is_served_or_cancelled(seed: int, num_streams: int, is_concurrent: bool) -> None:
    rng = random.Random(seed)
    streams = [
        SimulatedStream(
            key,
            arrives_s=rng.uniform(0, 3),
            num_tokens=rng.randint(1, 200),
            cancelled_at_s=rng.uniform(0, 6) if rng.random() < 0.3 else float("inf"),
            stalls={rng.randint(1, 100): rng.uniform(0, 2)} if rng.random() < 0.2 else {},
        )
        for key in range(num_streams)
    ]
    num_blocks = rng.choice([1, 4, 32])
    size = BatchSize(num_rows=num_blocks + num_blocks // 4, num_frames=num_blocks * FRAMES_PER_BLOCK)
    simulation = Simulation(streams, Limits(flow_batch=size, is_concurrent=is_concurrent))
    simulation.run(until_s=600.0)
    assert all(stream.is_done or stream.cancelled_at_s <= simulation.now_s for stream in streams)
    assert all(len(frames) <= size.num_rows and sum(frames) <= size.num_frames for frames in simulation.begun)
