"""Words of which the models make no sound, on hollow models: another try, then an error, and never a silent success."""

from collections.abc import Collection
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import PCM, HandDrivenEngine, Heard
from tests.support.word_times import words_in_time
from voicegate.engine.interface import AudioReady, Done, Failed, Flushed, SpeakingMode, UtteranceId, UtteranceRequest
from voicegate.engine.llm.backend import SequenceOutput

FIRST, SECOND = "The train to the coast leaves at nine. ", "The other one leaves a quarter later. "
MODES = [SpeakingMode.CLAUSE, SpeakingMode.INCREMENTAL, SpeakingMode.BISTREAM]


class Mute:
    """An engine whose LLM makes nothing in some of its passes, by their numbers."""

    def __init__(self, passes: Collection[int]) -> None:
        self._hollow = hollow()
        self._passes = passes
        self._step = self._hollow.runner.advance
        self.seeds: dict[int, int] = {}  # of all passes, by sequence
        self._hollow.runner.advance = self._mute_step  # type: ignore[method-assign]
        self.engine = HandDrivenEngine(stages=self._hollow.stages)

    def _mute_step(self, sequence_id: int, sequence: Any) -> SequenceOutput | None:
        self.seeds.setdefault(sequence_id, sequence.seed)
        if list(self.seeds).index(sequence_id) not in self._passes:
            return self._step(sequence_id, sequence)
        self._hollow.runner.abort(sequence_id)
        return SequenceOutput(sequence_id, is_final=True)

    def speak(self, *texts: str, seed: int | None = None, mode: SpeakingMode = SpeakingMode.CLAUSE) -> Heard:
        """Each flushed, all at once."""
        core, utterance_id = self.engine.core, UtteranceId("u")
        self.engine.heard[utterance_id] = Heard()
        core.submit(UtteranceRequest(utterance_id, "woman", PCM, mode, seed=seed), seed=1 if seed is None else seed)
        for number, text in enumerate(texts):
            core.push_text(utterance_id, text)
            core.flush_text(utterance_id, str(number))
        core.end_text(utterance_id)
        self.engine.run()
        assert self._hollow.held == hollow().held, "nothing is held"
        return self.engine.heard[utterance_id]

    @property
    def num_unheard(self) -> float:
        return self.engine.core.counters.get("clauses_unheard", 0)


def warnings_in(logs: list[Any]) -> list[str]:
    return [entry["event"] for entry in logs if entry["log_level"] == "warning"]


@pytest.mark.parametrize("mode", MODES)
def test_words_without_sound_are_tried_again_with_another_seed(mode: SpeakingMode) -> None:
    mute = Mute(passes=[0])
    with capture_logs() as logs:
        heard = mute.speak(FIRST, mode=mode)
    assert isinstance(heard.end, Done)
    assert heard.end.audio_ms > 1000
    assert not heard.end.is_truncated
    first, second = mute.seeds.values()
    assert first != second
    assert [word.text for word in words_in_time(heard.events)] == FIRST.split()
    assert (warnings_in(logs), mute.num_unheard) == ([], 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("seed", "num_passes"), [(None, 2), (7, 1)])
def test_words_that_stay_without_sound_are_an_error(mode: SpeakingMode, seed: int | None, num_passes: int) -> None:
    """The seed that a client has given is the only one."""
    mute = Mute(passes=range(5))
    with capture_logs() as logs:
        heard = mute.speak(FIRST, seed=seed, mode=mode)
    assert isinstance(heard.end, Failed)
    assert heard.end.is_of_text
    assert "made no speech of this text" in heard.end.message
    assert len(heard.events) == 1
    assert len(mute.seeds) == num_passes
    assert (warnings_in(logs), mute.num_unheard) == (["words_without_sound"], 1)


def test_what_was_heard_before_is_delivered_first() -> None:
    heard = Mute(passes=[1, 2]).speak(FIRST, SECOND)
    kinds = [type(event) for event in heard.events]
    assert isinstance(heard.end, Failed)
    assert kinds.count(Flushed) == 1, "the second flush is not answered as if all was well"
    assert AudioReady in kinds


def test_a_sentence_among_others_is_left_out_and_that_is_told() -> None:
    mute = Mute(passes=[1, 2])
    with capture_logs() as logs:
        heard = mute.speak(FIRST + SECOND + FIRST)
    assert isinstance(heard.end, Done)
    assert heard.end.is_truncated, "not all of the text was spoken"
    assert (warnings_in(logs), mute.num_unheard) == (["words_without_sound"], 1)


@pytest.mark.parametrize("text", [" ... ", "", "```\nx = 1\n```\n"])
def test_silence_is_success_where_nothing_is_to_be_said(text: str) -> None:
    mute = Mute(passes=range(5))
    heard = mute.speak(text)
    assert isinstance(heard.end, Done)
    assert (heard.end.audio_ms, heard.end.is_truncated, mute.num_unheard) == (0, False, 0)


def test_words_that_the_model_has_no_token_for_are_an_error() -> None:
    """The tiny model knows no letter of that script. Of its seeds some make nothing, some a moment of silence."""
    engine = HandDrivenEngine()
    end = engine.speak("u", ["\u4f60\u597d"]).end
    assert isinstance(end, Failed)
    assert end.is_of_text
    assert isinstance(engine.speak("v", ["Yes."]).end, Done)
