"""The simulated fleet: its GPU is the measured one, nothing is lost but by a failure, and better rules are better."""

import json
from dataclasses import replace

import numpy as np
import pytest

from voicegate.bench.fleet.__main__ import RESULTS
from voicegate.bench.fleet.gpu import Gpu, measured
from voicegate.bench.fleet.rules import Rule
from voicegate.bench.fleet.simulation import Case, Fleet

# Small GPUs, so that few sockets show what many would.
GPU = Gpu((1, 20, 40), (0.5, 0.95, 0.99, 1.0), ((10, 12, 13, 14), (20, 30, 40, 50), (60, 160, 200, 220)), 40)
CASE = Case(Rule.LEAST_UNTIL_FULL, num_gpus=12, num_streams=300, num_balancers=2, settle_s=5.0, measure_s=10.0)


def test_the_gpu_is_the_one_that_was_measured() -> None:
    gpu = measured(RESULTS)
    scenarios = json.loads(RESULTS.read_text())["scenarios"]
    for load, name in ((1, "first-audio"), (300, "sustain-300"), (400, "sustain-400")):
        times = scenarios[name]["first_audio_ms"]
        assert gpu.quantiles_ms(load) == [times["p50"], times["p95"], times["p99"], times["max"]]
    between = gpu.quantiles_ms(350)[1]
    assert between == pytest.approx((gpu.quantiles_ms(300)[1] + gpu.quantiles_ms(400)[1]) / 2)


@pytest.mark.parametrize("rule", list(Rule))
def test_streams_are_as_many_as_were_asked_for_and_nobody_is_lost(rule: Rule) -> None:
    fleet = Fleet(replace(CASE, rule=rule), GPU)
    steady = fleet.run()["steady"]
    assert sum(fleet._streams) == pytest.approx(CASE.num_streams, rel=0.1)
    assert steady["lost"] == 0
    for number, streams in enumerate(fleet._streams):
        speaking = [fleet._home[socket] == number and fleet._speaks[socket] for socket in range(len(fleet._home))]
        assert sum(speaking) == streams


def test_who_counts_sockets_spreads_them() -> None:
    def spread(rule: Rule) -> float:
        fleet = Fleet(replace(CASE, rule=rule), GPU)
        fleet.run()
        sockets = sum(balancer.sockets for balancer in fleet._balancers)
        assert isinstance(sockets, np.ndarray)
        return float(sockets.std())

    assert spread(Rule.LEAST_SOCKETS) < min(spread(Rule.ROUND_ROBIN), spread(Rule.RANDOM))


def test_a_failure_loses_its_own_streams_and_the_others_take_its_sockets() -> None:
    case = replace(CASE, num_failing=3)
    fleet = Fleet(case, GPU)
    report = fleet.run()
    assert 30 < (report["5 s after"]["lost"] or 0) < 110, "a quarter of 300, or so"
    assert report["settled"]["lost"] == 0
    assert (report["settled"]["p95_ms"] or 0) > (report["steady"]["p95_ms"] or 0)
    gone = [number for number, is_up in enumerate(fleet._is_up) if not is_up]
    assert len(gone) == 3
    assert not set(gone) & set(fleet._home)
    assert all(balancer.sockets[number] == 0 for balancer in fleet._balancers for number in gone)
    assert np.all(sum(balancer.sockets for balancer in fleet._balancers) >= 0)


def test_a_full_gpu_refuses_and_is_asked_again() -> None:
    steady = Fleet(replace(CASE, num_gpus=6), GPU).run()["steady"]
    assert (steady["refused"] or 0) > 0
    assert steady["most_streams_of_a_gpu"] == GPU.max_streams
