"""Neighbours on our cores cost threads; what this process takes itself does not."""

from pathlib import Path

import pytest
import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.cores import CoreTimes
from voicegate.engine.device.shared_cores import SharedCores, num_free_cores
from voicegate.engine.load.devices import open_device


@pytest.mark.parametrize(
    ("busy", "own", "num_cores", "free"),
    [
        (0.0, 0.0, 2, 2),
        (2.0, 2.0, 2, 2),  # all of it ours
        (2.0, 1.75, 2, 2),  # little: a client, say
        (2.0, 1.6, 2, 1),
        (2.0, 1.0, 2, 1),
        (2.0, 0.5, 2, 1),  # we have one at least
        (2.0, 0.0, 2, 1),
        (1.0, 1.3, 2, 2),  # ticks are coarse
        (9.0, 4.0, 16, 11),
        (9.0, 4.3, 16, 11),
        (1.0, 0.0, 1, 1),
    ],
)
def test_cores_are_free_that_others_do_not_take(busy: float, own: float, num_cores: int, free: int) -> None:
    before, now = CoreTimes(10.0, 5.0, 1.0), CoreTimes(12.0, 5.0 + 2 * busy, 1.0 + 2 * own)
    assert num_free_cores(before, now, num_cores) == free


class Host:
    """Two cores, of which others take `others`."""

    def __init__(self) -> None:
        self.now_s, self.others_s, self.num_reads = 0.0, 0.0, 0
        self.is_counted = True

    def pass_time(self, seconds: float, *, others: float = 0.0) -> None:
        self.now_s += seconds
        self.others_s += seconds * others

    def read(self) -> CoreTimes | None:
        self.num_reads += 1
        return CoreTimes(self.now_s, self.others_s, 0.0) if self.is_counted else None

    def shared_cores(self) -> SharedCores:
        return SharedCores(2, read=self.read, clock=lambda: self.now_s)


@pytest.mark.usefixtures("two_threads")
def test_a_neighbour_costs_a_thread_while_it_is_there() -> None:
    host = Host()
    cores = host.shared_cores()
    host.pass_time(0.2, others=1.0)
    cores.fit_threads()
    assert (torch.get_num_threads(), host.num_reads) == (2, 1), "too soon to look"
    host.pass_time(0.1, others=1.0)
    cores.fit_threads()
    assert torch.get_num_threads() == 1
    host.pass_time(0.3, others=0.1)
    cores.fit_threads()
    assert torch.get_num_threads() == 2
    host.pass_time(60.0, others=0.2)
    cores.fit_threads()
    assert (torch.get_num_threads(), host.num_reads) == (2, 4)


def test_no_more_threads_are_taken_than_were_given() -> None:
    host = Host()
    cores = host.shared_cores()
    host.pass_time(1.0)
    cores.fit_threads()
    assert torch.get_num_threads() == 1


@pytest.mark.usefixtures("two_threads")
def test_where_nobody_counts_there_are_no_neighbours() -> None:
    host = Host()
    host.is_counted = False
    cores = host.shared_cores()
    host.pass_time(1.0, others=2.0)
    cores.fit_threads()
    assert (torch.get_num_threads(), host.num_reads) == (2, 1)
    host.is_counted = True
    counting = host.shared_cores()
    host.is_counted = False
    host.pass_time(1.0, others=2.0)
    counting.fit_threads()
    assert torch.get_num_threads() == 2, "it fails later"


def test_an_engine_on_a_cpu_has_one_lane_that_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[SharedCores] = []
    monkeypatch.setattr(SharedCores, "fit_threads", lambda cores: looks.append(cores))
    device = open_device(EngineConfig(Path("unused"), device="cpu"))
    with device.llm_lane.active(), device.token2wav_lane.active():
        pass
    assert len(looks) == 2
    assert len(set(map(id, looks))) == 1
