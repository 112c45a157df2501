"""The CUDA flow with TensorRT's Euler steps equals the CPU's operations, with the golden weights, through the seam.

The package is a stand-in that computes with onnxruntime; what gathers the context runs in Triton's interpreter.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from tests.support.flow import (
    CPU,
    drain,
    flow_config,
    make_model,
    make_runner,
    open_stream,
    render_ready,
)
from tests.support.flow_reference import REFERENCE_OPS
from tests.support.tensorrt.computing import computing_package
from tests.support.tensorrt.package import VERSIONS
from voicegate.engine.backends.tensorrt import graph
from voicegate.engine.backends.tensorrt.flow.engines import FlowEngines
from voicegate.engine.backends.tensorrt.flow.estimator import TensorrtEstimator
from voicegate.engine.backends.tensorrt.flow.shape import FlowShape
from voicegate.engine.backends.tensorrt.flow.step_graph import flow_step_model
from voicegate.engine.backends.tensorrt.library import LoadedEngine, TensorrtError, build_plan
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.cuda.ops import STEP_OPS
from voicegate.engine.flow.stream import BlockStream

CONFIG = replace(flow_config(), num_euler_steps=2)  # the interpreter takes its time

EAGER = FlowCudaConfig(frame_buckets=(16, 50, 100, 150), has_graphs=False)
ONE_SHORT, ONE_LONG, TWO = FlowShape(1, 50, 50), FlowShape(1, 50, 150), FlowShape(2, 50, 100)
# As of our own path of fixed shapes.
ATOL = 5e-6
# Difference of our attention's kernel.
KERNEL_ATOL = 2e-5


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[FlowShape, LoadedEngine]:
    package = computing_package(VERSIONS[-1])
    flow, directory = make_model(), tmp_path_factory.mktemp("graphs")
    found = {}
    for shape in (ONE_SHORT, ONE_LONG, TWO):
        path = directory / f"{shape.name}.onnx"
        graph.save(flow_step_model(flow.estimator, shape, cfg_rate=flow.config.cfg_rate, low="float32"), path)
        found[shape] = LoadedEngine(package, build_plan(package, path), CPU)
    return found


class Counted:
    """How many blocks each engine has computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shapes: list[FlowShape] = []
        begin = TensorrtEstimator.begin

        def counted(estimator: TensorrtEstimator, batch: object) -> None:
            self.shapes.append(estimator.shape)
            begin(estimator, batch)

        monkeypatch.setattr(TensorrtEstimator, "begin", counted)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@cache
def expected(num_tokens: int, prompt_size: int, seed: int) -> torch.Tensor:
    runner = make_runner(config=CONFIG)
    return drain(runner, open_stream(runner, num_tokens, prompt_size=prompt_size, seed=seed))


def rms(values: torch.Tensor) -> float:
    return values.square().mean().sqrt().item()


def test_a_single_stream_goes_from_engine_to_engine_to_our_kernels(
    loaded: dict[FlowShape, LoadedEngine], counted: Counted
) -> None:
    """Behind nothing, one block, two, three, and then more than there is an engine for; the last block is short."""
    runner = make_runner(config=CONFIG, cuda=EAGER, engines=FlowEngines(loaded, CPU))
    mel = drain(runner, open_stream(runner, 137, prompt_size=13))
    assert counted.shapes == [ONE_SHORT, ONE_SHORT, ONE_LONG, ONE_LONG]
    torch.testing.assert_close(mel, expected(137, 13, 0), rtol=0, atol=ATOL)


def test_our_kernels_go_on_where_an_engine_left_off_and_before(
    loaded: dict[FlowShape, LoadedEngine], counted: Counted
) -> None:
    """The kernel itself: what engines leave in the pool is what they would have left, and the other way round."""
    behind_nothing = FlowShape(1, 50, 0)  # of which there is no engine
    engines = FlowEngines({ONE_SHORT: loaded[ONE_SHORT]}, CPU, shapes=[ONE_SHORT, behind_nothing])
    ops = replace(REFERENCE_OPS, attend=STEP_OPS.attend)  # the one that keeps keys and values
    runner = make_runner(config=CONFIG, cuda=EAGER, engines=engines, ops=ops)
    with np.errstate(all="ignore"):  # the interpreter is numpy, and computes padding as well
        mel = drain(runner, open_stream(runner, 58))
    assert counted.shapes == [ONE_SHORT], "the second block of three"
    torch.testing.assert_close(mel, expected(58, 0, 0), rtol=0, atol=KERNEL_ATOL)


def test_two_rows_behind_different_contexts(loaded: dict[FlowShape, LoadedEngine], counted: Counted) -> None:
    """The longer context stands first in the table, and lies second."""
    runner = make_runner(config=CONFIG, cuda=EAGER, engines=FlowEngines(loaded, CPU))
    first, second = open_stream(runner, 30, seed=1), open_stream(runner, 70, prompt_size=30, seed=2)
    found: dict[BlockStream, list[torch.Tensor]] = {first: [], second: []}
    counted.shapes.clear()
    for _ in range(2):
        for stream, mel in zip(found, render_ready(runner, [*found]), strict=True):
            found[stream].append(mel)
    assert counted.shapes == [TWO, TWO]
    for stream, (size, prompt, seed) in ((first, (30, 0, 1)), (second, (70, 30, 2))):
        mel = torch.cat(found[stream], dim=1)
        torch.testing.assert_close(mel, expected(size, prompt, seed)[:, : mel.shape[1]], rtol=0, atol=ATOL)


def test_more_rows_than_an_engine_has_are_our_kernels(loaded: dict[FlowShape, LoadedEngine], counted: Counted) -> None:
    """Three short blocks have the frames of two whole ones."""
    runner = make_runner(config=CONFIG, cuda=EAGER, engines=FlowEngines(loaded, CPU))
    mels = render_ready(runner, [open_stream(runner, 15, seed=seed) for seed in range(3)])
    assert counted.shapes == []
    for seed, mel in enumerate(mels):
        torch.testing.assert_close(mel, expected(15, 0, seed), rtol=0, atol=ATOL)


def test_rows_that_are_not_a_number_stay_apart(loaded: dict[FlowShape, LoadedEngine], counted: Counted) -> None:
    """The first row is short: what lies behind its last frame is the other's."""
    runner = make_runner(config=CONFIG, cuda=EAGER, engines=FlowEngines(loaded, CPU))
    short, whole = open_stream(runner, 20, seed=1), open_stream(runner, 40, seed=2)
    whole.prompt.speaker_bias.fill_(torch.nan)
    found, spoiled = render_ready(runner, [short, whole])
    assert counted.shapes == [TWO]
    assert spoiled.isnan().any()
    torch.testing.assert_close(found, expected(20, 0, 1), rtol=0, atol=ATOL)


def test_8_bit_context_is_read_and_left(loaded: dict[FlowShape, LoadedEngine], counted: Counted) -> None:
    """An engine that reads and leaves it as our own path does."""
    found = []
    for engines in (FlowEngines(loaded, CPU), None):
        runner = make_runner(config=CONFIG, cuda=EAGER, engines=engines, kv_dtype=torch.float8_e4m3fn)
        found.append(drain(runner, open_stream(runner, 73)))
    assert counted.shapes == [ONE_SHORT, ONE_SHORT, ONE_LONG]
    exact = expected(73, 0, 0)
    error, difference = (rms(found[0] - other) / rms(exact) for other in (exact, found[1]))
    assert 1e-4 < error < 5e-2, "it is of 8 bits"
    # A value between two numbers of 8 bits goes to one or the other by the order in which a processor sums up.
    assert difference < error / 20


def test_two_batches_interleave(loaded: dict[FlowShape, LoadedEngine], counted: Counted) -> None:
    """They share what a step needs; each has its own of what a solve has."""
    runner = make_runner(config=CONFIG, cuda=EAGER, engines=FlowEngines(loaded, CPU))
    streams = [open_stream(runner, 28, seed=seed) for seed in (1, 2)]
    batches = [runner.begin([stream]) for stream in streams]
    for _ in range(CONFIG.num_euler_steps):
        for batch in batches:
            batch.advance()
    assert counted.shapes == [ONE_SHORT, ONE_SHORT]
    for seed, batch in zip((1, 2), batches, strict=True):
        torch.testing.assert_close(batch.result()[0], expected(28, 0, seed)[:, :50], rtol=0, atol=ATOL)


def test_every_engine_runs_before_it_is_captured(loaded: dict[FlowShape, LoadedEngine], counted: Counted) -> None:
    runner = make_runner(config=CONFIG, cuda=replace(EAGER, frame_buckets=(50, 100)), engines=FlowEngines(loaded, CPU))
    runner.graphs.compile()
    assert counted.shapes == [shape for shape in (ONE_SHORT, TWO, ONE_LONG) for _ in range(EAGER.max_batches)]
    assert drain(runner, open_stream(runner, 30)).isfinite().all()


def test_engines_of_another_precision(loaded: dict[FlowShape, LoadedEngine]) -> None:
    with pytest.raises(TensorrtError, match=r"flow_step_1x50_behind_50 is of .*32, the flow of"):
        make_runner(config=CONFIG, cuda=EAGER, engines=FlowEngines(loaded, CPU), dtype=torch.bfloat16)
