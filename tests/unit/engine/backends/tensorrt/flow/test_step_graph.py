"""The flow's Euler step as ONNX equals the engine's own, block after block, on a CPU."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
import torch

from tests.support.flow import flow_config, flow_state, short_noise
from tests.support.tensorrt.graphs import graph_hash, runner_of, types_of
from voicegate.engine.backends.tensorrt.flow.shape import GRAPH_VERSION, NEVER, FlowShape
from voicegate.engine.backends.tensorrt.flow.step_graph import flow_step_model
from voicegate.engine.backends.tensorrt.graph import DTYPES, OPSET, Array
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.estimator import CONV_HISTORY
from voicegate.engine.flow.euler import euler_step
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.stream import BlockRow
from voicegate.engine.flow.torch.solver import BlockContext

CPU = torch.device("cpu")
SHAPE = FlowShape(num_rows=2, num_frames=50, context_frames=100)
# RMS, relative to the mel's own: 1.2e-7, 2.3e-4 and 2.2e-3 were seen.
TOLERANCES = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}


@pytest.fixture(scope="module")
def flow() -> FlowModel:
    return FlowModel(flow_config(), flow_state(), device=CPU, dtype=torch.float32, noise=short_noise())


class Engine:
    """The graph as a solver would run it, block after block of the same rows: contexts are gathered and kept here."""

    def __init__(self, flow: FlowModel, low: str) -> None:
        self._flow = flow
        cfg_rate = flow.config.cfg_rate
        self._run = runner_of(flow_step_model(flow.estimator, SHAPE, cfg_rate=cfg_rate, low=low), low=low)
        self._low = low
        self._kept: dict[int, dict[str, Array]] = {}  # by step: what finished blocks left
        self._num_before = 0

    def block(self, base: torch.Tensor) -> torch.Tensor:
        start = self._num_before
        frames = slice(start, start + SHAPE.num_frames)
        rotation = self._flow.rotations[frames]
        x = self._flow.noise[frames].expand(SHAPE.num_rows, -1, -1).numpy()
        config, dtype = self._flow.config.estimator, DTYPES[self._low][1]
        context = (2, 2, SHAPE.num_rows, config.num_heads, SHAPE.context_frames, config.head_dim)
        for step, width in enumerate(self._flow.schedule.widths):
            fed = {
                "x": x,
                "base": base.numpy(),
                "cos": np.stack([rotation.real.numpy()] * SHAPE.num_rows),
                "sin": np.stack([rotation.imag.numpy()] * SHAPE.num_rows),
                "modulation": self._flow.estimator.modulation_table[step].numpy(),
                "width": np.array([width], np.float32),
                "mask": mask_of([start] * SHAPE.num_rows, [SHAPE.num_frames] * SHAPE.num_rows),
                "tails": np.zeros((SHAPE.num_rows, 2, 2, CONV_HISTORY, config.dim), dtype),
                **{f"context.{layer}": np.zeros(context, dtype) for layer in range(config.depth)},
            }
            for name, known in self._kept.get(step, {}).items():
                if name == "tails":
                    fed[name] = known
                else:
                    fed[name][..., : known.shape[4], :] = known
            x = self._advance(step, fed)
        self._num_before += SHAPE.num_frames
        return torch.from_numpy(x)

    def _advance(self, step: int, fed: Mapping[str, Array]) -> Array:
        made = self._run(fed)
        kept = self._kept.setdefault(step, {})
        kept["tails"] = made["new_tails"]
        for layer in range(self._flow.config.estimator.depth):
            name = f"context.{layer}"
            value = made[f"new_{name}"].transpose(1, 2, 0, 3, 4, 5)
            kept[name] = value if name not in kept else np.concatenate((kept[name], value), axis=4)
        next_x: Array = made["next_x"]
        return next_x


def mask_of(context_frames: Sequence[int], num_frames: Sequence[int]) -> Array:
    """A mask: of each row, so many places of its context and of its block are there."""
    mask = np.full((SHAPE.num_rows, 1, 1, SHAPE.context_frames + SHAPE.num_frames), NEVER, np.float32)
    for row, (before, now) in enumerate(zip(context_frames, num_frames, strict=True)):
        mask[row, ..., :before] = 0
        mask[row, ..., SHAPE.context_frames : SHAPE.context_frames + now] = 0
    return mask


class Reference:
    """The engine's own estimator over its own pool."""

    def __init__(self, flow: FlowModel) -> None:
        self._flow = flow
        self._pool = BlockPool(
            flow.config.estimator, num_steps=flow.schedule.num_steps, num_blocks=8, device=CPU, dtype=torch.float32
        )
        self._blocks: list[tuple[int, ...]] = [() for _ in range(SHAPE.num_rows)]

    @torch.inference_mode()
    def block(self, base: torch.Tensor) -> torch.Tensor:
        new = self._pool.allocate(SHAPE.num_rows)
        rows = [BlockRow(before, block, SHAPE.num_frames) for before, block in zip(self._blocks, new, strict=True)]
        context = BlockContext(self._pool, rows)
        start = len(self._blocks[0]) * SHAPE.num_frames
        frames = slice(start, start + SHAPE.num_frames)
        x = self._flow.noise[frames].expand(SHAPE.num_rows, -1, -1)
        rotation = self._flow.rotations[frames].expand(SHAPE.num_rows, -1, -1)
        halves = torch.stack((base, self._flow.estimator.input_bias.expand_as(base)))
        for step, width in enumerate(self._flow.schedule.widths):
            velocity = self._flow.estimator.velocity(x, halves, rotation, step=step, context=context)
            x = euler_step(x, velocity, width=width, cfg_rate=self._flow.config.cfg_rate)
        self._blocks = [(*before, block) for before, block in zip(self._blocks, new, strict=True)]
        return x


@pytest.mark.parametrize(
    ("low", "num_blocks"), [("float32", 3), ("float16", 3), pytest.param("bfloat16", 2, marks=pytest.mark.soak)]
)
def test_blocks_in_ten_steps_each(flow: FlowModel, low: str, num_blocks: int) -> None:
    """The third sees a full context, the second one that is padded, the first none."""
    engine, reference = Engine(flow, low), Reference(flow)
    generator = torch.Generator().manual_seed(1)
    for _ in range(num_blocks):
        base = torch.randn(SHAPE.num_rows, SHAPE.num_frames, flow.config.estimator.dim, generator=generator)
        found, expected = engine.block(base), reference.block(base)
        error = (found - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert error < TOLERANCES[low]


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
def test_products_are_low_and_what_adds_up_is_float32(flow: FlowModel, low: str) -> None:
    model = flow_step_model(flow.estimator, SHAPE, cfg_rate=flow.config.cfg_rate, low=low)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", OPSET)]
    types = types_of(model)
    wanted = onnx.TensorProto.FLOAT16 if low == "float16" else onnx.TensorProto.BFLOAT16
    kinds = {node.op_type for node in model.graph.node}
    assert {"MatMul", "Conv", "LayerNormalization", "Gelu", "Softmax"} <= kinds
    for node in model.graph.node:
        if node.op_type in ("MatMul", "Conv", "Softmax"):
            assert {types[name] for name in node.input} == {wanted}, node.name
        if node.op_type in ("LayerNormalization", "Gelu", "Softplus", "Tanh"):
            assert {types[name] for name in node.input} == {onnx.TensorProto.FLOAT}, node.name
    assert types["next_x"] == onnx.TensorProto.FLOAT


def test_another_graph_has_another_version(flow: FlowModel) -> None:
    """Engines on disk are told by it: whoever changes the graph raises GRAPH_VERSION, and puts the new hash here."""
    made = flow_step_model(flow.estimator, SHAPE, cfg_rate=flow.config.cfg_rate, low="bfloat16")
    assert {GRAPH_VERSION: graph_hash(made)} == {"1": "5ad2a196578e8545"}
