"""The host's words to the kernels on a batch."""

from tests.unit.engine.flow.cuda.support import Bench, Row
from voicegate.engine.flow.cuda.buffers import BEFORE, BLOCK


def test_each_row_names_the_block_right_before_its_own() -> None:
    """The convolutions' history is there: of another block it would be another moment's."""
    bench = Bench([Row(3, 50), Row(0, 50), Row(2, 50)], num_rows=4, num_lines=200)
    before = dict(bench.batch.rows[:, [BLOCK, BEFORE]].tolist())
    wanted = {row.block: row.finished[-1] if row.finished else bench.pool.before_first for row in bench.rows}
    assert before == wanted | {bench.pool.scratch: bench.pool.before_first}
