"""Slots are rows of one table; windows are cut at each row's own end."""

import torch

from voicegate.engine.vocoder.torch.state import BatchRows, StateTable, behind_tail

CPU = torch.device("cpu")


def rows_of(*frames: int) -> BatchRows:
    nothing = torch.zeros(len(frames), dtype=torch.bool)
    uniform = frames[0] if len(set(frames)) == 1 else None
    return BatchRows(torch.tensor(frames), nothing, nothing, uniform)


def test_gathered_rows_are_copies_until_they_are_scattered() -> None:
    table = StateTable({"a": (2, 3), "b": (4,)}, 3, dtype=torch.float32, device=CPU)
    slots = torch.tensor([2, 0])
    rows = table.gather(slots)
    tails = table.tails(rows)
    tails["a"][0].fill_(7)
    tails["b"][1].fill_(8)
    assert not table.rows.any()
    table.scatter(slots, rows)
    assert table.rows[2].tolist() == [7.0] * 6 + [0.0] * 4
    assert table.rows[0].tolist() == [0.0] * 6 + [8.0] * 4
    table.reset(2)
    assert not table.rows[2].any()


def test_windows_of_even_and_uneven_rows() -> None:
    buffer = torch.arange(20.0).expand(2, 20)
    assert rows_of(3, 3).window(buffer, 4, 2).tolist() == [[12, 13], [12, 13]]
    assert rows_of(3, 1).window(buffer, 4, 2).tolist() == [[12, 13], [4, 5]]
    assert rows_of(3, 1).window(buffer, 4, 2, offset=-1).tolist() == [[11, 12], [3, 4]]
    assert rows_of(3, 1).window(buffer[:, :, None].expand(2, 20, 5), 4, 2).shape == (2, 2, 5)


def test_tail_ends_where_the_row_ends() -> None:
    tail = torch.tensor([[[-2.0], [-1.0]], [[-2.0], [-1.0]]])
    x = torch.arange(4.0)[None, :, None].expand(2, 4, 1)
    buffer = behind_tail(tail, x, rows_of(4, 1), 1)
    assert buffer[:, :, 0].tolist() == [[-2, -1, 0, 1, 2, 3]] * 2
    assert tail[:, :, 0].tolist() == [[2, 3], [-1, 0]]
