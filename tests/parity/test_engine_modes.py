"""Every conditioning through the whole engine, by clause and in bistream: what the LLM is told, and that it speaks."""

from dataclasses import replace

import pytest
import torch

from tests.support.tiny_engine import CONFIG, PCM, HandDrivenEngine, Heard, tiny_stages
from voicegate.engine.core import clause_feed
from voicegate.engine.core.prompting import voice_prompt
from voicegate.engine.core.stages import ReadyVoice, Stages, VoicePrompt
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.interface import Done, SpeakingMode, UtteranceId, UtteranceRequest
from voicegate.engine.llm.backend import LlmPrompt, SequenceRequest

TEXT = "It is a fine day."
MODES = [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM]


class Overheard:
    """The shared LLM, and what it was asked for."""

    def __init__(self) -> None:
        self.requests: list[SequenceRequest] = []
        self._llm = tiny_stages().llm

    def add(self, request: SequenceRequest) -> None:
        self.requests.append(request)
        self._llm.add(request)

    def __getattr__(self, name: str) -> object:
        return getattr(self._llm, name)


def stages_with(voices: dict[str, ReadyVoice]) -> tuple[Stages, Overheard]:
    llm = Overheard()
    return replace(tiny_stages(), llm=llm, voices={**tiny_stages().voices, **voices}), llm


def without_transcript(*, is_fixed: bool) -> ReadyVoice:
    """woman as prompt audio in an unknown language, or as nothing but its speaker embedding."""
    stages, ready = tiny_stages(), tiny_stages().voices["woman"]
    voice = replace(ready.voice, transcript="", prompt_text="")
    if is_fixed:
        voice = replace(voice, speech_tokens=voice.speech_tokens[:0], mel=torch.zeros(0, 80))
    prompt = voice_prompt(voice, stages.tokenizer, instruct_prefix=stages.model.instruct_prefix)
    flow_prompt = ready.flow_prompt
    if is_fixed:
        flow_prompt = VoicePrompt.of(stages.flow.prepare(FlowPrompt(voice.speech_tokens, voice.mel, voice.embedding)))
    return ReadyVoice(voice, prompt, flow_prompt)


def prefix_ids() -> tuple[int, ...]:
    return tiny_stages().tokenizer.encode_prompt(tiny_stages().model.instruct_prefix)


def assert_sounds_as_long_as_zero_shot(heard: Heard, mode: SpeakingMode) -> None:
    zero_shot = HandDrivenEngine().speak("zero-shot", [TEXT], mode=mode)
    assert isinstance(zero_shot.end, Done)
    assert isinstance(heard.end, Done)
    assert 0.6 < heard.end.audio_ms / zero_shot.end.audio_ms < 1.6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_voice_without_transcript_speaks_with_the_prefix_alone(mode: SpeakingMode, is_fixed: bool) -> None:
    stages, llm = stages_with({"other": without_transcript(is_fixed=is_fixed)})
    heard = HandDrivenEngine(stages=stages).speak("u", [TEXT], voice="other", mode=mode)
    (request,) = llm.requests
    if mode is SpeakingMode.CLAUSE:
        assert request.prompt == LlmPrompt()
        assert request.text_ids[: len(prefix_ids())] == prefix_ids()
    else:
        assert request.prompt == LlmPrompt(prefix_ids())
    assert_sounds_as_long_as_zero_shot(heard, mode)


@pytest.mark.parametrize("mode", MODES)
def test_an_instruction_takes_the_place_of_transcript_and_speech(mode: SpeakingMode) -> None:
    """The tiny model's speech for it is another matter: it was not trained to follow any."""
    stages, llm = stages_with({})
    engine = HandDrivenEngine(stages=stages)
    utterance_id = engine.submit("u", mode=mode)
    engine.core.cancel(utterance_id, None)
    request = UtteranceRequest(UtteranceId("v"), "woman", PCM, mode, instruct="Speak slowly.")
    engine.heard[request.utterance_id] = Heard()
    engine.core.submit(request, seed=1)
    engine.core.push_text(request.utterance_id, TEXT)
    engine.core.end_text(request.utterance_id)
    engine.run()
    (asked,) = llm.requests
    ids = prefix_ids()
    assert asked.prompt.text_ids == ids[:-1] + stages.tokenizer.encode(" Speak slowly.") + ids[-1:]
    assert asked.prompt.speech_ids == ()
    assert isinstance(engine.heard[request.utterance_id].end, Done)


@pytest.mark.parametrize("instruct", [None, "", "  "])
def test_no_instruction_is_zero_shot(instruct: str | None) -> None:
    stages, llm = stages_with({})
    engine = HandDrivenEngine(stages=stages)
    request = UtteranceRequest(UtteranceId("u"), "woman", PCM, SpeakingMode.CLAUSE, instruct=instruct)
    engine.heard[request.utterance_id] = Heard()
    engine.core.submit(request, seed=1)
    engine.core.push_text(request.utterance_id, TEXT)
    engine.core.end_text(request.utterance_id)
    engine.step()
    voice = stages.voices["woman"].voice
    assert llm.requests[0].prompt.speech_ids == tuple(voice.speech_tokens.tolist())
    engine.core.cancel(request.utterance_id, None)


@pytest.mark.parametrize("mode", MODES)
def test_when_the_end_comes_changes_nothing(mode: SpeakingMode) -> None:
    """All text may have come before the pass begins, as on a busy engine, or its end long after."""
    late = HandDrivenEngine().speak("late", [TEXT], mode=mode)
    engine = HandDrivenEngine()
    utterance_id = engine.submit("early", mode=mode)
    engine.core.push_text(utterance_id, TEXT)
    engine.core.end_text(utterance_id)
    engine.run()
    assert engine.heard[utterance_id].pcm == late.pcm


@pytest.mark.parametrize("mode", MODES)
def test_speech_that_a_limit_cuts_off_is_said_to_be_so(mode: SpeakingMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A voice much slower than any that clauses are cut for."""
    monkeypatch.setattr(clause_feed, "SLOW_MS_PER_LETTER", 1)
    cut = HandDrivenEngine(replace(CONFIG, max_clause_tokens=20)).speak("u", [TEXT], mode=mode).end
    whole = HandDrivenEngine().speak("u", [TEXT], mode=mode).end
    assert isinstance(cut, Done)
    assert isinstance(whole, Done)
    assert (cut.is_truncated, whole.is_truncated) == (True, False)
    assert cut.audio_ms <= 20 * 40 < whole.audio_ms
