"""Work at a few sizes, as far as that needs no GPU; tests/gpu replays real graphs."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from voicegate.engine.device.cuda_graphs import BucketedWork, GraphNotCaptured


def test_compiling_runs_every_key_on_padding_and_says_so() -> None:
    calls: list[str] = []
    work = BucketedWork(
        lambda key: calls.append(f"work {key}"),
        [4, 2, 1],
        pad=lambda key: calls.append(f"pad {key}"),
        is_eager=True,
    )
    work.compile(lambda: calls.append("done"))
    assert calls == [part for key in (4, 2, 1) for part in (f"pad {key}", f"work {key}", "done")]
    assert calls.count("done") == work.num_buckets


def test_keys_whose_kernels_are_anothers_are_not_compiled() -> None:
    calls: list[int] = []
    work = BucketedWork(calls.append, [2, 20, 1, 10], pad=lambda _: None, compiled_keys=[2, 1], is_eager=True)
    work.capture()
    assert calls == [2, 1]
    assert (work.num_buckets, work.num_graphs) == (2, 0)


def test_eager_work_is_launched_and_none_of_it_counts() -> None:
    calls: list[int] = []
    work = BucketedWork(calls.append, [2, 1], pad=lambda _: None, is_eager=True)
    work.run(1)
    work.run(2)
    assert calls == [1, 2]
    assert work.num_launches == 0


def test_a_graph_that_was_not_captured_is_named_with_the_remedy() -> None:
    work = BucketedWork(lambda _: None, [(4, 50)], pad=lambda _: None, is_eager=False)
    with pytest.raises(GraphNotCaptured, match=r"for \(4, 50\): call capture\(\) once"):
        work.run((4, 50))


def test_every_key_is_captured_in_order_behind_its_compilation_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Graph:
        def __init__(self) -> None:
            self.number = sum(call.startswith("begin") for call in calls)

        def capture_begin(self, **_: Any) -> None:
            calls.append(f"begin {self.number}")

        def capture_end(self) -> None:
            calls.append(f"end {self.number}")

        def replay(self) -> None:
            calls.append(f"replay {self.number}")

    def noted(name: str) -> Callable[..., Any]:
        return lambda *_: calls.append(name)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "synchronize", noted("synchronize"))
    work = BucketedWork(
        lambda key: calls.append(f"work {key}"), [20, 10], pad=noted("pad"), compiled_keys=[10], is_eager=False
    )
    work.capture()
    compiled = ["pad", "work 10", "synchronize"]
    assert calls == [*compiled, "begin 0", "work 20", "end 0", "begin 1", "work 10", "end 1", "synchronize"]
    assert (work.num_graphs, work.num_launches) == (2, 0)
    work.run(10)
    work.run(20)
    assert calls[-2:] == ["replay 1", "replay 0"]
    assert work.num_launches == 2
