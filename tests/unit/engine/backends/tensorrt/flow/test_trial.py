"""Measurements before there are streams: blocks of every shape, after contexts of their own, amid its range."""

from tests.support.flow import make_model, make_runner
from tests.support.flow_reference import FLOAT8_REFERENCE_OPS, REFERENCE_OPS
from tests.unit.engine.flow.cuda.support import EAGER
from voicegate.engine.backends.tensorrt.flow.shape import ENGINE_SHAPES, FlowShape
from voicegate.engine.backends.tensorrt.flow.trial import FlowTrial, measured_blocks
from voicegate.engine.flow.cuda.solver import CudaSolver

SHAPES = [FlowShape(1, 50, 100), FlowShape(1, 50, 300), FlowShape(2, 50, 100)]


def test_blocks_of_every_shape_behind_contexts_of_their_own() -> None:
    model = make_model()
    trial = FlowTrial(model, EAGER, SHAPES, kv_dtype=model.estimator.dtype)
    assert trial.pool.keys_values.isfinite().all()
    for shape, num_finished in zip(SHAPES, (1, 4, 1), strict=True):
        streams, rows = trial.blocks(shape)
        assert [(len(row.finished), row.num_frames) for row in rows] == [(num_finished, 50)] * shape.num_rows
        used = [block for row in rows for block in (*row.finished, row.block)]
        assert len(set(used)) == len(used)
        assert max(used) < trial.pool.scratch
        assert all(stream.is_ready and stream.next_num_frames == 50 for stream in streams)


def test_they_can_be_computed() -> None:
    runner = make_runner(cuda=EAGER)
    trial = FlowTrial(runner.model, EAGER, SHAPES, kv_dtype=runner.model.estimator.dtype)
    solver = CudaSolver(runner.model, trial.pool, EAGER, ops=REFERENCE_OPS, float8_ops=FLOAT8_REFERENCE_OPS)
    solve = solver.begin(*trial.blocks(SHAPES[2]))
    for _ in range(runner.model.schedule.num_steps):
        solve.advance()
    assert all(mel.isfinite().all() for mel in solve.frames([slice(0, 50)] * 2))


def test_contexts_are_amid_what_a_shape_is_for() -> None:
    assert [measured_blocks(shape, ENGINE_SHAPES) for shape in ENGINE_SHAPES] == [3, 8, 15] * 2
