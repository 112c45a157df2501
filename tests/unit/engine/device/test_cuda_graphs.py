"""Work at a few sizes, as far as that needs no GPU; tests/gpu replays real graphs."""

import pytest

from voicegate.engine.device.cuda_graphs import BucketedWork, GraphNotCaptured

pytestmark = pytest.mark.unit


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
