"""On a processor the beginning of a first block is heard while the vocoder has yet to make the rest of it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.support.tiny_engine import CONFIG, HandDrivenEngine, tiny_stages
from voicegate.engine.interface import Cancelled, Done, Failed, UtteranceId
from voicegate.engine.vocoder.backend import VocoderJob

TEXT = "Good morning, and welcome back."


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Frames of each job of each call of the vocoder."""
    vocoder, seen = tiny_stages().vocoder, []
    run = vocoder.run

    def noted(jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        seen.append([job.mel.shape[1] for job in jobs])
        return run(jobs)

    monkeypatch.setattr(vocoder, "run", noted)
    return seen


def begun(engine: HandDrivenEngine, name: str) -> UtteranceId:
    utterance_id = engine.submit(name)
    engine.core.push_text(utterance_id, TEXT)
    engine.core.end_text(utterance_id)
    return utterance_id


def until_heard(engine: HandDrivenEngine, utterance_id: UtteranceId) -> None:
    while not engine.heard[utterance_id].pcm:
        assert engine.step()


def test_a_beginning_is_heard_before_the_rest_is_made(calls: list[list[int]]) -> None:
    engine = HandDrivenEngine()
    utterance_id = begun(engine, "u")
    until_heard(engine, utterance_id)
    num_ahead, num_heard = tiny_stages().frames_ahead, len(engine.heard[utterance_id].pcm)
    assert calls == [[tiny_stages().vocoder.held_back_frames + num_ahead]]
    assert engine.core.is_busy
    engine.step()
    first_block = 2 * tiny_stages().voices["woman"].flow_prompt.first_block_tokens
    assert [sum(call) for call in calls[:2]] == [calls[0][0], first_block - calls[0][0]]
    assert len(engine.heard[utterance_id].pcm) > num_heard
    engine.run()
    assert isinstance(engine.heard[utterance_id].end, Done)
    assert all(len(call) == 1 for call in calls)


def test_what_is_said_is_what_is_said_without() -> None:
    cut = HandDrivenEngine().speak("u", [TEXT]).pcm
    whole = HandDrivenEngine(CONFIG, replace(tiny_stages(), frames_ahead=0)).speak("u", [TEXT]).pcm
    difference = np.frombuffer(cut, np.int16).astype(int) - np.frombuffer(whole, np.int16)
    assert abs(difference).max() <= 1


def test_who_is_cancelled_between_has_no_rest(calls: list[list[int]]) -> None:
    engine = HandDrivenEngine()
    utterance_id = begun(engine, "u")
    until_heard(engine, utterance_id)
    num_heard = len(engine.heard[utterance_id].pcm)
    engine.core.cancel(utterance_id, None)
    engine.run()
    assert isinstance(engine.heard[utterance_id].end, Cancelled)
    assert len(engine.heard[utterance_id].pcm) == num_heard
    assert len(calls) == 1
    assert not engine.core.is_busy


def test_a_rest_that_fails_ends_its_own_utterance_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = HandDrivenEngine()
    broken = begun(engine, "broken")
    until_heard(engine, broken)
    with monkeypatch.context() as patched:
        patched.setattr(tiny_stages().vocoder, "run", lambda _: 1 / 0)
        engine.step()
    assert isinstance(engine.heard[broken].end, Failed)
    other = engine.speak("other", [TEXT])
    assert isinstance(other.end, Done)
    assert other.pcm == HandDrivenEngine().speak("alone", [TEXT]).pcm


def test_a_rest_that_fails_does_not_end_who_made_way_before(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = HandDrivenEngine()
    away, broken = begun(engine, "away"), begun(engine, "broken")
    while len(engine.core._pipeline.token2wav.clauses_with_remainders) < 2:
        assert engine.step()
    (utterance, _) = engine.core._roster
    engine.set_aside(utterance)
    with monkeypatch.context() as patched:
        patched.setattr(tiny_stages().vocoder, "run", lambda _: 1 / 0)
        engine.step()
    assert isinstance(engine.heard[broken].end, Failed)
    engine.run()
    assert isinstance(engine.heard[away].end, Done)


def test_who_makes_way_between_says_all_of_it_once() -> None:
    engine = HandDrivenEngine()
    utterance_id = begun(engine, "u")
    until_heard(engine, utterance_id)
    (utterance,) = engine.core._roster
    engine.set_aside(utterance)
    engine.run()
    assert engine.heard[utterance_id].pcm == HandDrivenEngine().speak("alone", [TEXT]).pcm
