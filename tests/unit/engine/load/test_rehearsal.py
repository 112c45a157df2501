"""Times of blocks are known before anybody listens."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG
from voicegate.bench.standins.llm import HollowRunner
from voicegate.engine.core.core import EngineCore
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmDied
from voicegate.engine.load import build
from voicegate.engine.load.rehearsal import rehearsed


def test_both_blocks_of_a_slow_engine_are_timed_and_nothing_is_kept_of_their_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stages, launch = hollow().stages, HollowRunner.launch

    def slow(runner: HollowRunner, ids: Sequence[int]) -> Any:
        time.sleep(0.01)  # so that a first block takes longer than it leaves its listener in hand beside the next one
        return launch(runner, ids)

    monkeypatch.setattr(HollowRunner, "launch", slow)
    free = stages.llm.num_free_slots, stages.flow.num_free_blocks
    times = rehearsed(CONFIG, stages, "woman")
    assert times._longest_first is not None
    assert times._longest_later is not None
    assert (stages.llm.num_free_slots, stages.flow.num_free_blocks) == free


def test_the_engine_that_is_loaded_knows_them() -> None:
    loaded = build.load_engine(replace(CONFIG, threads=1), lambda _: None)
    try:
        core = loaded.core
        assert isinstance(core, EngineCore)
        assert 0 < core._reprefills.block_time._quickest_first_s < math.inf
    finally:
        loaded.close()


def test_an_llm_that_dies_of_it_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = hollow().stages

    def dies() -> Any:
        raise LlmDied("gone")

    monkeypatch.setattr(stages.llm, "poll", dies)
    with pytest.raises(EngineError, match="rehearsal: the speech LLM died: gone"):
        rehearsed(CONFIG, stages, "woman")
