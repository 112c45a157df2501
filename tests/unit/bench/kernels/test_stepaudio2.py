"""Timed parts of the second family: every bucket once, on a CPU, at the golden modules' sizes."""

from collections.abc import Callable

import torch

from tests.support.stepaudio2 import flow_config, golden_vocoder_config
from voicegate.bench.kernels import stepaudio2
from voicegate.bench.kernels.stepaudio2_model import StepAudio2Fixture, full_size_flow
from voicegate.engine.families.stepaudio2.flow.bucket_solver import BucketConfig
from voicegate.engine.families.stepaudio2.flow.torch_solver import TorchSolver
from voicegate.engine.families.stepaudio2.vocoder.bucket_caller import BucketCaller, CallConfig
from voicegate.engine.families.stepaudio2.vocoder.resblocks import plain_resblock

CPU = torch.device("cpu")


def called(work: Callable[[], object]) -> float:
    work()
    return 0.5


def test_every_bucket_is_timed() -> None:
    buckets = BucketConfig(token_buckets=(4,), row_buckets=(1, 2), known_buckets=(20, 40), has_graphs=False)
    fixture = StepAudio2Fixture(
        flow_config(), num_rows=2, num_known=40, device=CPU, dtype=torch.float32, kv_dtype=torch.float8_e4m3fn
    )
    result = stepaudio2.flow(fixture, buckets, stepaudio2.plain_step, name="flow", timed_ms=called)
    times = {"begin_ms": 0.5, "block_ms": 0.5, "step_ms": 0.0}
    assert result == {"num_graphs": 0} | {f"{rows} x 4 behind {known}": times for rows in (1, 2) for known in (20, 40)}
    calls = CallConfig(frame_buckets=(12,), row_buckets=(1, 2), has_graphs=False)
    caller = BucketCaller(stepaudio2.vocoder_model(plain_resblock, CPU, golden_vocoder_config()), calls)
    result = stepaudio2.vocoder(caller, (1, 3), (12,), name="vocoder", timed_ms=called)
    assert result == {"num_graphs": 0, "1 x 12": 0.5, "3 x 12": 0.5}, "three rows take two calls"


def test_a_context_is_drawn_again_as_it_was() -> None:
    fixture = StepAudio2Fixture(flow_config(), num_rows=1, num_known=40, device=CPU, dtype=torch.float32)
    drawn = fixture.memory.estimator.clone(), fixture.memory.frames.clone()
    solve = TorchSolver(fixture.model, fixture.memory, max_batches=1).begin(fixture.rows([40], [4]))
    solve.advance()
    assert not torch.equal(fixture.memory.estimator, drawn[0]), "the chunk has left its frames"
    fixture.draw_context()
    assert torch.equal(fixture.memory.estimator, drawn[0])
    assert torch.equal(fixture.memory.frames, drawn[1])


def test_it_is_measured_at_the_released_size() -> None:
    estimator = full_size_flow().estimator
    assert (estimator.dim, estimator.depth, estimator.num_heads, estimator.head_dim) == (512, 16, 8, 64)
