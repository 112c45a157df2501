"""How far TensorRT's Euler step is off our own float32 operations: rows behind different contexts, at two steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from voicegate.engine import units
from voicegate.engine.backends.tensorrt.flow.shape import NEVER, FlowShape
from voicegate.engine.backends.tensorrt.library import LoadedEngine
from voicegate.engine.backends.tensorrt.single_engine import SingleEngine
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.euler import euler_step
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.stream import BlockRow
from voicegate.engine.flow.torch.solver import BlockContext

_SHORT_FRAMES: Final = 34  # of a stream's last block
# Of values in the context, and of what lies where there is none: so that who leaves out a layer's context, or looks at
# what is masked, is seen in a model with many other layers.
_LARGE: Final = 8.0


@dataclass(frozen=True, slots=True)
class _Case:
    step: int
    rows: list[BlockRow]
    x: torch.Tensor  # [B, n, 80]
    base: torch.Tensor  # [B, n, D]
    rotation: torch.Tensor  # [B, n, d / 2] complex


class FlowCheck:
    def __init__(self, model: FlowModel) -> None:
        """`model`: in float32, on the CPU."""
        self._model = model

    @torch.inference_mode()
    def error(self, engine: LoadedEngine, shape: FlowShape) -> float:
        """The largest of any case's outputs: RMS, relative. NaN where the engine has one. Raises TensorrtError."""
        single = SingleEngine(engine)
        num_blocks = shape.context_frames // FRAMES_PER_BLOCK
        last = self._model.schedule.num_steps - 1
        full = [(num_blocks - row % (num_blocks + 1), shape.num_frames) for row in range(shape.num_rows)]
        some = [(num_blocks // 2, _SHORT_FRAMES)] * shape.num_rows
        errors = [
            self._case_error(single, shape, self._case(shape, step, rows)) for step, rows in ((0, full), (last, some))
        ]
        return float(torch.stack(errors).max())

    def _case(self, shape: FlowShape, step: int, rows: Sequence[tuple[int, int]]) -> tuple[_Case, BlockPool]:
        """`rows`: finished blocks, and frames of the new one. The pool's blocks are random at this step alone."""
        config, generator = self._model.config.estimator, torch.Generator().manual_seed(step)
        num_finished = sum(finished for finished, _ in rows)
        pool = BlockPool(
            config,
            num_steps=self._model.schedule.num_steps,
            num_blocks=num_finished + len(rows),
            device=torch.device("cpu"),
            dtype=torch.float32,
        )
        for block in range(num_finished):
            pool.keys_values[block, step].normal_(generator=generator)
            pool.keys_values[block, step, :, 1] *= _LARGE
            pool.tails[block, step].normal_(generator=generator)
        blocks = iter(range(num_finished))
        table = [
            BlockRow(tuple(next(blocks) for _ in range(finished)), num_finished + row, num_frames)
            for row, (finished, num_frames) in enumerate(rows)
        ]
        firsts = [FRAMES_PER_BLOCK * finished for finished, _ in rows]
        size = (shape.num_rows, shape.num_frames)
        case = _Case(
            step=step,
            rows=table,
            x=torch.randn(*size, units.NUM_MELS, generator=generator),
            base=torch.randn(*size, config.dim, generator=generator),
            rotation=torch.stack([self._model.rotations[first : first + shape.num_frames] for first in firsts]),
        )
        return case, pool

    def _case_error(self, single: SingleEngine, shape: FlowShape, made: tuple[_Case, BlockPool]) -> torch.Tensor:
        case, pool = made
        for name, numbers in self._inputs(shape, case, pool).items():
            single.tensors[name].copy_(numbers)
        single.run()
        expected_x = self._next_x(case, pool)  # fills the new blocks
        found = {name: tensor.float().cpu() for name, tensor in single.tensors.items()}
        errors = []
        for number, row in enumerate(case.rows):
            valid = slice(row.num_frames)
            kept = pool.keys_values[row.block, case.step, ..., valid, :]  # [depth, 2, C * H, n, d]
            mine = torch.stack(
                [found[f"new_context.{layer}"][number, ..., valid, :].flatten(1, 2) for layer in range(len(kept))]
            )
            # How x moves, not where it comes to: it moves little.
            start = case.x[number, valid]
            errors.append(_relative(found["next_x"][number, valid] - start, expected_x[number, valid] - start))
            errors.append(_relative(mine, kept))
            if row.num_frames == FRAMES_PER_BLOCK:
                errors.append(_relative(found["new_tails"][number], pool.tails[row.block, case.step]))
        return torch.stack(errors).max()

    def _next_x(self, case: _Case, pool: BlockPool) -> torch.Tensor:
        """By our own operations."""
        model, step = self._model, case.step
        halves = torch.stack((case.base, model.estimator.input_bias.expand_as(case.base)))
        context = BlockContext(pool, case.rows)
        velocity = model.estimator.velocity(case.x, halves, case.rotation, step=step, context=context)
        return euler_step(case.x, velocity, width=model.schedule.widths[step], cfg_rate=model.config.cfg_rate)

    def _inputs(self, shape: FlowShape, case: _Case, pool: BlockPool) -> dict[str, torch.Tensor]:
        model, step = self._model, case.step
        config = model.config.estimator
        mask = torch.full((shape.num_rows, 1, 1, shape.context_frames + shape.num_frames), NEVER)
        size = (config.depth, 2, 2, shape.num_rows, config.num_heads, shape.context_frames, config.head_dim)
        context = torch.full(size, _LARGE)
        for number, row in enumerate(case.rows):
            known = FRAMES_PER_BLOCK * len(row.finished)
            mask[number, ..., :known] = 0
            mask[number, ..., shape.context_frames : shape.context_frames + row.num_frames] = 0
            for place, block in enumerate(row.finished):
                frames = slice(FRAMES_PER_BLOCK * place, FRAMES_PER_BLOCK * (place + 1))
                kept = pool.keys_values[block, step]
                context[:, :, :, number, :, frames] = kept.view(config.depth, 2, 2, -1, *kept.shape[3:])
        before = [row.finished[-1] if row.finished else pool.before_first for row in case.rows]
        return {
            "x": case.x,
            "base": case.base,
            "cos": case.rotation.real,
            "sin": case.rotation.imag,
            "modulation": model.estimator.modulation_table[step],
            "width": torch.tensor([model.schedule.widths[step]]),
            "mask": mask,
            "tails": pool.tails[before, step],
            **{f"context.{layer}": context[layer] for layer in range(config.depth)},
        }


def _relative(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    return (found - expected).square().mean().sqrt() / expected.square().mean().sqrt()
