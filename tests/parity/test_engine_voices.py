"""Voices that come and go while the engine speaks, by hand: they sound like voices of the start, and leave nothing."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.tiny_engine import CONFIG, HandDrivenEngine, tiny_stages
from voicegate.engine import units
from voicegate.engine.core.stages import ReadyVoice, Stages, VoiceRoom
from voicegate.engine.core.voice_shelf import voice_room
from voicegate.engine.interface import Done, EngineError, VoiceRefused
from voicegate.engine.voices.voice import Voice


@pytest.fixture
def woman() -> Voice:
    return tiny_stages().voices["woman"].voice


@pytest.fixture
def stages() -> Iterator[Stages]:
    """As the test leaves them, so it found them."""
    num_free = tiny_stages().flow.num_free_blocks
    yield tiny_stages()
    assert tiny_stages().flow.num_free_blocks == num_free


def add(engine: HandDrivenEngine, voice: Voice) -> EngineError | None:
    answers: list[ReadyVoice | EngineError] = []
    engine.core.prepare_voice(voice, answers.append)
    while not answers:
        engine.step()
    (answer,) = answers
    if isinstance(answer, EngineError):
        return answer
    engine.core.install_voice(answer)
    return None


def test_a_voice_added_later_sounds_like_one_of_the_start(stages: Stages, woman: Voice) -> None:
    engine = HandDrivenEngine(stages=stages)
    wanted = engine.speak("own", ["Good day."], voice="woman")
    assert add(engine, replace(woman, name="twin")) is None
    heard = engine.speak("later", ["Good day."], voice="twin")
    assert len(wanted.pcm) > 0
    assert heard.pcm == wanted.pcm
    engine.core.remove_voice("twin")


def test_one_that_was_taken_up_beside_speech_sounds_the_same(stages: Stages, woman: Voice) -> None:
    engine = HandDrivenEngine(stages=stages)
    wanted = engine.speak("own", ["Good day."], voice="woman")
    utterance = engine.submit("meanwhile")
    engine.core.push_text(utterance, "Good day to you all, and a good night.")
    engine.core.end_text(utterance)
    assert add(engine, replace(woman, name="twin")) is None
    assert engine.heard[utterance].pcm, "it has spoken meanwhile"
    assert engine.speak("later", ["Good day."], voice="twin").pcm == wanted.pcm
    engine.core.remove_voice("twin")


def test_a_removed_voice_finishes_what_it_is_saying(stages: Stages, woman: Voice) -> None:
    engine = HandDrivenEngine(stages=stages)
    wanted = engine.speak("own", ["Good day. ", "And good night."], voice="woman")
    num_free = stages.flow.num_free_blocks
    assert add(engine, replace(woman, name="guest")) is None
    held = num_free - stages.flow.num_free_blocks
    assert held == stages.voices["woman"].flow_prompt.num_blocks
    utterance = engine.submit("guest", voice="guest")
    engine.core.push_text(utterance, "Good day. ")
    engine.step()
    engine.core.remove_voice("guest")
    engine.core.push_text(utterance, "And good night.")  # a later clause opens the prompt again
    engine.core.end_text(utterance)
    engine.run()
    heard = engine.heard[utterance]
    assert isinstance(heard.end, Done)
    assert heard.pcm == wanted.pcm
    assert stages.flow.num_free_blocks == num_free


def test_a_replaced_voice_goes_when_its_last_utterance_does(stages: Stages, woman: Voice) -> None:
    engine = HandDrivenEngine(stages=stages)
    assert add(engine, replace(woman, name="guest")) is None
    utterance = engine.submit("old", voice="guest")
    engine.step()
    num_free = stages.flow.num_free_blocks
    other = replace(woman, name="guest", embedding=stages.voices["man"].voice.embedding)  # as long as the one before
    assert add(engine, other) is None
    assert stages.flow.num_free_blocks < num_free  # both are there
    engine.core.cancel(utterance, None)
    assert stages.flow.num_free_blocks == num_free
    engine.core.remove_voice("guest")


def test_a_prompt_longer_than_the_room_is_refused(stages: Stages, woman: Voice) -> None:
    room = VoiceRoom((woman.num_tokens - 1,) * 10)
    engine = HandDrivenEngine(stages=replace(stages, voice_room=room))
    answer = add(engine, replace(woman, name="long"))
    assert type(answer) is VoiceRefused
    seconds, room_seconds = (tokens / units.TOKEN_RATE_HZ for tokens in (woman.num_tokens, woman.num_tokens - 1))
    assert f"{seconds:.1f} s long and this running engine has room for {room_seconds:.1f} s" in str(answer)


def test_a_transcript_of_more_tokens_than_the_llm_has_room_for_is_refused(stages: Stages, woman: Voice) -> None:
    transcript = "Hello there, it is very nice" + "\U0001fae0" * 570
    prompt_text = stages.model.instruct_prefix + transcript
    answer = add(HandDrivenEngine(), replace(woman, name="guest", transcript=transcript, prompt_text=prompt_text))
    assert type(answer) is VoiceRefused
    assert "of the model's text tokens, and at most 416 leave a sentence room" in str(answer)


def test_what_breaks_while_a_voice_is_taken_up_is_told_and_breaks_nothing_else(stages: Stages, woman: Voice) -> None:
    engine = HandDrivenEngine(stages=stages)
    answer = add(engine, replace(woman, name="bad", mel=woman.mel[:-50]))
    assert "internal error" in str(answer)
    assert isinstance(engine.speak("u", ["Good day."]).end, Done)


def test_there_is_room_for_the_voices_that_the_configuration_promises(woman: Voice) -> None:
    config = replace(CONFIG, spare_voices=3, spare_voice_tokens=260)
    room = voice_room(config, [woman, woman])
    assert room.prompt_tokens == (woman.num_tokens, woman.num_tokens, 260, 260, 260)
    assert room.longest_tokens == 260
    assert voice_room(replace(config, spare_voices=0), [woman]) == VoiceRoom((woman.num_tokens,))
