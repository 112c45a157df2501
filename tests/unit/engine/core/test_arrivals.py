"""Voices that are taken up while others are heard: by steps counted, by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.hollow_stages import Hollow, hollow, hollow_voice
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from voicegate.engine.core.constants import STEPS_BEFORE_NEW_VOICE
from voicegate.engine.core.pipeline import Pipeline
from voicegate.engine.core.policy import Decision
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.flow.prompt_rendering import BlockPromptRendering
from voicegate.engine.interface import Done, EngineError, Overloaded, UtteranceId

TEXT = "Good morning to all of you, and to those who are late as well. " * 3
_NUM_EULER_STEPS = 10  # of the one whole block that a hollow voice's prompt has


@dataclass
class Watched:
    """An engine of which every step's decision is kept."""

    models: Hollow = field(default_factory=hollow)
    answers: list[ReadyVoice | EngineError] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = HandDrivenEngine(CONFIG, self.models.stages)
        self.core = self.engine.core
        self.free = self.models.held
        step = self.core.step

        def noted() -> Decision:
            self.decisions.append(step())
            return self.decisions[-1]

        self.core.step = noted  # type: ignore[method-assign]

    def speak(self, name: str = "u") -> UtteranceId:
        utterance = self.engine.submit(name)
        self.core.push_text(utterance, TEXT)
        self.core.end_text(utterance)
        return utterance

    def step_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            assert self.engine.step(), "nothing is left to do"

    def add(self, name: str = "guest") -> None:
        self.core.prepare_voice(hollow_voice(name), self.answers.append)

    def num_prompt_steps(self) -> int:
        return sum(decision.has_prompt_step for decision in self.decisions)

    def pcm(self, utterance: UtteranceId) -> bytes:
        heard = self.engine.heard[utterance]
        assert isinstance(heard.end, Done)
        return heard.pcm

    def assert_nobody_noticed(self, utterance: UtteranceId) -> None:
        """All is as it would be without a voice that was not taken up."""
        self.engine.run()
        alone = Watched()
        wanted = alone.speak("alone")
        alone.engine.run()
        assert self.pcm(utterance) == alone.pcm(wanted)
        assert self.models.held == self.free


def test_where_nobody_speaks_every_step_is_one_of_the_prompts() -> None:
    watched = Watched()
    watched.add()
    watched.step_until(lambda: bool(watched.answers))
    assert isinstance(watched.answers[0], ReadyVoice)
    assert [decision.has_prompt_step for decision in watched.decisions] == [True] * _NUM_EULER_STEPS


def test_speech_has_its_turns_between_two_steps_of_a_prompt_and_the_prompt_its_own() -> None:
    watched = Watched()
    utterances = [watched.speak(f"u{number}") for number in range(3)]
    watched.step_until(lambda: len(watched.decisions) == 20)
    watched.decisions.clear()
    watched.add()
    watched.step_until(lambda: bool(watched.answers))
    assert all(decision.llm or decision.has_flow_step for decision in watched.decisions), (
        "speech was to be without rest"
    )
    places = [place for place, decision in enumerate(watched.decisions) if decision.has_prompt_step]
    num_before = [sum(each.has_flow_step for each in watched.decisions[:place]) for place in places]
    assert num_before == [STEPS_BEFORE_NEW_VOICE * (1 + number) for number in range(_NUM_EULER_STEPS)]
    watched.core.discard_voice(watched.answers[0])  # type: ignore[arg-type]
    watched.assert_nobody_noticed(utterances[0])


def test_one_voice_after_the_other() -> None:
    watched = Watched()
    watched.add("first")
    watched.add("second")
    watched.step_until(lambda: bool(watched.answers))
    assert watched.num_prompt_steps() == _NUM_EULER_STEPS
    (num_blocks,) = {each.flow_prompt.num_blocks for each in watched.models.stages.voices.values()}
    assert watched.models.held[1] == watched.free[1] - num_blocks  # the second has begun nothing
    watched.step_until(lambda: len(watched.answers) == 2)
    names = [answer.voice.name for answer in watched.answers if isinstance(answer, ReadyVoice)]
    assert names == ["first", "second"]


@pytest.mark.parametrize("num_steps", [0, 1, 5])
def test_one_that_is_refused_in_the_middle_gives_all_back_and_the_next_goes_on(num_steps: int) -> None:
    watched = Watched()
    utterance = watched.speak()
    first, second = hollow_voice("first"), hollow_voice("second")
    watched.core.prepare_voice(first, watched.answers.append)
    watched.core.prepare_voice(second, watched.answers.append)
    watched.step_until(lambda: watched.num_prompt_steps() == num_steps)
    watched.core.refuse_voices("not this one", first)
    assert [str(answer) for answer in watched.answers] == ["not this one"]
    watched.step_until(lambda: len(watched.answers) == 2)
    ready = watched.answers[1]
    assert isinstance(ready, ReadyVoice)
    assert ready.voice is second
    watched.core.refuse_voices("too late", second)
    assert len(watched.answers) == 2
    watched.core.discard_voice(ready)
    watched.assert_nobody_noticed(utterance)


def test_what_breaks_in_the_middle_fails_that_voice_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    utterance = watched.speak()
    advance = BlockPromptRendering.advance

    def break_later(rendering: BlockPromptRendering) -> bool:
        return 1 / 0 > 1 if watched.num_prompt_steps() == 3 else advance(rendering)

    with monkeypatch.context() as patched:
        patched.setattr(BlockPromptRendering, "advance", break_later)
        watched.add()
        watched.step_until(lambda: bool(watched.answers))
    assert "internal error while taking up voice 'guest'" in str(watched.answers[0])
    watched.assert_nobody_noticed(utterance)


def test_speech_that_needs_memory_has_that_of_a_voice_that_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    set_aside: list[object] = []
    monkeypatch.setattr(Pipeline, "set_aside", lambda _, clause: set_aside.append(clause))
    watched = Watched(hollow(num_blocks=2))  # so much as the first clause needs before it is over
    watched.speak()
    watched.step_until(lambda: bool(watched.decisions[-1:]) and bool(watched.decisions[-1].llm))
    watched.add()
    while watched.models.flow.num_free_blocks:
        assert watched.engine.step()
    watched.step_until(lambda: bool(watched.answers))
    assert isinstance(watched.answers[0], Overloaded), "it passes"
    assert "full of speech" in str(watched.answers[0])
    assert watched.num_prompt_steps()
    assert not set_aside


def test_a_prompt_in_the_batch_that_speech_waits_for_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's flow has buffers for two batches."""
    watched = Watched()
    watched.add()
    watched.step_until(lambda: watched.num_prompt_steps() == 1)
    utterance = watched.speak()
    solver: Any = watched.models.flow._solver
    with monkeypatch.context() as patched:
        patched.setattr(solver, "max_batches", 0)
        watched.step_until(lambda: bool(watched.answers))
    assert [decision.has_prompt_step for decision in watched.decisions] == [True] * _NUM_EULER_STEPS
    assert any(decision.llm for decision in watched.decisions)
    watched.core.discard_voice(watched.answers[0])  # type: ignore[arg-type]
    watched.assert_nobody_noticed(utterance)


def test_a_prompt_begins_no_batch_where_none_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    solver: Any = watched.models.flow._solver
    with monkeypatch.context() as patched:
        patched.setattr(solver, "max_batches", 0)
        watched.add()
        assert not watched.engine.step()
        assert not watched.answers
    watched.step_until(lambda: bool(watched.answers))
    assert isinstance(watched.answers[0], ReadyVoice)
