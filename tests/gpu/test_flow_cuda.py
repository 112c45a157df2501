"""The flow on a CUDA device: golden data, graphs against eager, kernels against torch, streams against each other.

The numbers that bfloat16 and 8-bit contexts cost are printed: run with -s.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.support.flow import drain, make_prompt, make_runner, make_tokens, offline, prepare_beside, render_ready
from tests.support.flow_reference import REFERENCE_OPS
from tests.support.golden import GOLDEN_DIR, TINY_MODEL_DIR, load_arrays
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.cuda.ops import STEP_OPS, StepOps
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

CUDA = torch.device("cuda")
GRAPHS = FlowCudaConfig(frame_buckets=(16, 32, 50, 100, 200))
EAGER = replace(GRAPHS, has_graphs=False)
# Float32, of two correct implementations of the golden modules: 1.2e-6 was seen, ten steps of sums in another order.
FLOAT32_ATOL = 2e-5
PROMPT_SIZES = (30, 13, 0)


def make(config: FlowCudaConfig, *, num_blocks: int = 24, ops: StepOps = STEP_OPS) -> FlowRunner:
    runner = make_runner(num_blocks=num_blocks, cuda=config, device=CUDA, ops=ops)
    runner.graphs.capture()
    return runner


@cache
def float32_runner() -> FlowRunner:
    """Shared by the tests that leave it as they found it."""
    return make(GRAPHS)


def stream_all(
    runner: FlowRunner, prompts: Sequence[FlowPrompt], tokens: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """Whole streams together, as long as they last: [80, n] each, on the CPU."""
    prepared = [runner.prepare(prompt) for prompt in prompts]
    streams = [runner.open(each) for each in prepared]
    for stream, ids in zip(streams, tokens, strict=True):
        stream.append(ids)
        stream.finish()
    parts: list[list[torch.Tensor]] = [[] for _ in streams]
    while ready := [i for i, stream in enumerate(streams) if stream.is_ready]:
        for i, mel in zip(ready, render_ready(runner, [streams[i] for i in ready]), strict=True):
            parts[i].append(mel.cpu())
    for stream in streams:
        runner.close(stream)
    for each in prepared:
        runner.release(each)
    return [torch.cat(mels, dim=1) for mels in parts]


def three_streams(runner: FlowRunner) -> list[torch.Tensor]:
    prompts = [make_prompt(size, seed=size) for size in PROMPT_SIZES]
    return stream_all(runner, prompts, [make_tokens(40 + 9 * i, seed=i) for i in range(3)])


def assert_near(actual: torch.Tensor, expected: torch.Tensor, *, atol: float = FLOAT32_ATOL) -> None:
    torch.testing.assert_close(actual.cpu(), expected.cpu(), rtol=0, atol=atol)


# --- golden -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flow() -> dict[str, torch.Tensor]:
    arrays: dict[str, npt.NDArray[Any]] = load_arrays("flow.npz")
    return {key: torch.from_numpy(array) for key, array in arrays.items() if array.dtype.kind in "fi"}


def golden_stream(flow: dict[str, torch.Tensor], num_tokens: int, *, has_prompt: bool, finish: bool) -> torch.Tensor:
    runner = float32_runner()
    prompt = (
        FlowPrompt(flow["prompt_token"][0], flow["prompt_feat"][0], flow["embedding"][0])
        if has_prompt
        else FlowPrompt(torch.empty(0, dtype=torch.int64), torch.empty(0, 80), flow["embedding"][0])
    )
    prepared = runner.prepare(prompt)
    stream = runner.open(prepared)
    stream.append(flow["token"][0, :num_tokens].tolist())
    if finish:
        stream.finish()
    mel = drain(runner, stream)
    runner.close(stream)
    runner.release(prepared)
    return mel


def test_golden_float32(flow: dict[str, torch.Tensor]) -> None:
    mel = golden_stream(flow, 103, has_prompt=True, finish=True)
    print(f"\nfloat32 against golden data: max {(mel - flow['mel_full_stream'][0]).abs().max():.1e}")
    assert_near(mel, flow["mel_full_stream"][0])
    mel = golden_stream(flow, 48, has_prompt=True, finish=False)
    assert_near(mel, flow["mel_stream_k45_notfinal"][0])
    mel = golden_stream(flow, 28, has_prompt=False, finish=False)
    assert_near(mel, flow["mel_noprompt_stream_25_notfinal"][0])


@pytest.mark.parametrize(("streaming", "key"), [(True, "mel_full_stream"), (False, "mel_full_nonstream")])
def test_offline_float32(flow: dict[str, torch.Tensor], streaming: bool, key: str) -> None:
    prompt = FlowPrompt(flow["prompt_token"][0], flow["prompt_feat"][0], flow["embedding"][0])
    tokens = flow["token"][0].tolist()
    mel = offline(float32_runner(), prompt, tokens, streaming=streaming, is_final=True)
    assert_near(mel, flow[key][0])


# --- the path of fixed shapes -----------------------------------------------------------------------------


def test_graphs_equal_eager() -> None:
    for captured, eager in zip(three_streams(float32_runner()), three_streams(make(EAGER)), strict=True):
        assert torch.equal(captured, eager)


def test_kernels_equal_torch() -> None:
    """One kernel at a time, so that a failure names it."""
    expected = three_streams(make(EAGER, ops=REFERENCE_OPS))
    for name in ("embed", "norm", "attend", "linear", "widen", "update", "euler"):
        ops = replace(REFERENCE_OPS, **{name: getattr(STEP_OPS, name)})
        worst = max(
            (actual - wanted).abs().max().item()
            for actual, wanted in zip(three_streams(make(EAGER, ops=ops)), expected, strict=True)
        )
        print(f"\n{name}: max {worst:.1e}", end="")
        assert worst < FLOAT32_ATOL, name


def test_others_change_nothing() -> None:
    runner = float32_runner()
    for i, mel in enumerate(three_streams(runner)):
        prompt = make_prompt(PROMPT_SIZES[i], seed=PROMPT_SIZES[i])
        (alone,) = stream_all(runner, [prompt], [make_tokens(40 + 9 * i, seed=i)])
        assert_near(mel, alone)


def test_padding_is_harmless() -> None:
    """Three streams in a bucket of four are bit for bit the three of four."""
    runner = float32_runner()
    prompts = [make_prompt(13, seed=i) for i in range(4)]
    tokens = [make_tokens(60, seed=i) for i in range(4)]
    four = stream_all(runner, prompts, tokens)
    for three, mel in zip(stream_all(runner, prompts[:3], tokens[:3]), four, strict=False):
        assert torch.equal(three, mel)


def test_streaming_equals_offline() -> None:
    runner = float32_runner()
    for size in PROMPT_SIZES:
        prompt, tokens = make_prompt(size, seed=size), make_tokens(77, seed=size)
        (mel,) = stream_all(runner, [prompt], [tokens])
        assert_near(mel, offline(runner, prompt, tokens, streaming=True, is_final=True))


def test_reused_blocks_leak_nothing() -> None:
    runner = make(GRAPHS, num_blocks=4)
    for seed in range(3):
        prompt, tokens = make_prompt(30, seed=seed), make_tokens(65 - 10 * seed, seed=seed)
        (mel,) = stream_all(runner, [prompt], [tokens])
        (alone,) = stream_all(float32_runner(), [prompt], [tokens])
        assert torch.equal(mel, alone)
        assert runner.num_free_blocks == 4


def test_batches_interleave() -> None:
    runner = float32_runner()
    prompts = [make_prompt(0, seed=i) for i in range(2)]
    tokens = [make_tokens(28, seed=i) for i in range(2)]
    streams = [runner.open(runner.prepare(prompt)) for prompt in prompts]
    for stream, ids in zip(streams, tokens, strict=True):
        stream.append(ids)
    first = runner.begin(streams[:1])
    for _ in range(4):
        first.advance()
    second = runner.begin(streams[1:])
    assert runner.num_free_batches == 0
    while not second.advance():
        first.advance()
    mels = [*second.result()]
    while not first.advance():
        pass
    mels = [*first.result(), *mels]
    for mel, prompt, ids in zip(mels, prompts, tokens, strict=True):
        assert_near(mel, offline(float32_runner(), prompt, ids, streaming=True, is_final=False))
    for stream in streams:
        runner.close(stream)


def test_a_prompt_is_the_same_whatever_runs_between_its_steps() -> None:
    runner = float32_runner()
    speaking = runner.prepare(make_prompt(0))
    stream = runner.open(speaking)
    stream.append(make_tokens(80))
    prepared = [prepare_beside(runner, make_prompt(60), stream), runner.prepare(make_prompt(60))]
    assert len(stream.blocks) > 0, "it has run between them"
    streams = [runner.open(each) for each in prepared]
    for each in streams:
        each.append(make_tokens(50))
    beside, alone = (drain(runner, each) for each in streams)
    assert torch.equal(beside, alone)
    for each in (stream, *streams):
        runner.close(each)
    for prompt in (speaking, *prepared):
        runner.release(prompt)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_nothing_is_captured_and_nothing_waits_after_start_up() -> None:
    runner = float32_runner()
    three_streams(runner)  # the pinned allocator's first blocks
    num_graphs = runner.graphs.num_graphs
    assert num_graphs == 2 * GRAPHS.max_batches * len(GRAPHS.frame_buckets)
    prepared = runner.prepare(make_prompt(30))
    streams = [runner.open(prepared) for _ in range(3)]
    for i, stream in enumerate(streams):
        stream.append(make_tokens(50, seed=i))
    torch.cuda.set_sync_debug_mode("error")
    try:
        mels = render_ready(runner, streams)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(mel.isfinite().all() for mel in mels)
    assert runner.graphs.num_graphs == num_graphs
    for stream in streams:
        runner.close(stream)
    runner.release(prepared)


# --- precision --------------------------------------------------------------------------------------------


def tiny_mels(
    dtype: torch.dtype, *, kv_dtype: torch.dtype | None = None, product_dtype: torch.dtype | None = None
) -> list[torch.Tensor]:
    """Speech of the trained tiny model in both voices."""
    runner = make_runner(
        config=load_model_config(TINY_MODEL_DIR).flow,
        state=load_state_dict(TINY_MODEL_DIR / "flow.safetensors"),
        num_blocks=32,
        max_streams=2,
        cuda=replace(GRAPHS, float8_frames=0, product_dtype=product_dtype),
        device=CUDA,
        dtype=dtype,
        kv_dtype=kv_dtype,
        ops=STEP_OPS,
    )
    runner.graphs.capture()
    with np.load(GOLDEN_DIR / "tiny_reference.npz") as archive:
        tokens = [archive[f"{voice}.speech_tokens"].tolist() for voice in ("woman", "man")]
    prompts = []
    for voice in ("woman", "man"):
        tensors = load_state_dict(TINY_MODEL_DIR / "voices" / f"{voice}.safetensors")
        prompts.append(FlowPrompt(tensors["speech_tokens"].long(), tensors["mel"].float(), tensors["embedding"]))
    return stream_all(runner, prompts, tokens)


def test_precision_of_the_trained_model() -> None:
    """Mels are natural logarithms: 0.05 is half a decibel."""
    with np.load(GOLDEN_DIR / "tiny_reference.npz") as archive:
        expected = [torch.from_numpy(archive[f"{voice}.mel"]) for voice in ("woman", "man")]
    float8 = torch.float8_e4m3fn
    dtypes: dict[str, Any]
    for dtype, dtypes, limit in (
        (torch.float32, {}, 1e-3),
        (torch.bfloat16, {}, 0.05),
        (torch.bfloat16, {"kv_dtype": float8}, 0.1),
        (torch.bfloat16, {"product_dtype": float8}, 0.1),
    ):
        mels = tiny_mels(dtype, **dtypes)
        errors = torch.cat([(mel - wanted).abs().flatten() for mel, wanted in zip(mels, expected, strict=True)])
        rms = errors.square().mean().sqrt()
        print(f"\n{dtype}, {dtypes}: mel error rms {rms:.1e}, max {errors.max():.1e}", end="")
        assert rms < limit
