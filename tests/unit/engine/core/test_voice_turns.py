"""More voices than there is room for, over models that compute nothing: whose room is kept, and whose is given back."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.parity.test_engine_voices import add
from tests.support.hollow_stages import hollow, hollow_voice
from tests.support.tiny_engine import HandDrivenEngine
from voicegate.engine.core.stages import Stages, VoiceRoom
from voicegate.engine.flow.chunking import FirstBlocks
from voicegate.engine.interface import Done, Failed, Overloaded, UtteranceId
from voicegate.engine.voices.voice import Voice

_NUM_TOKENS = 44  # with what is put before them they take all the room that is counted for them: two blocks
TEXTS = ["Good day to you. ", "And good night."]


def room_for(num: int, stages: Stages) -> VoiceRoom:
    return VoiceRoom((stages.voices["woman"].voice.num_tokens,) * num)


@pytest.fixture
def stages() -> Iterator[Stages]:
    """With room for the two voices that there are."""
    woman, man = (hollow_voice(name, num_tokens=_NUM_TOKENS) for name in ("woman", "man"))
    voices = [woman, replace(man, mel=man.mel + 0.25)]  # they sound by it
    models = hollow(voices=voices, first_blocks=FirstBlocks(usual=12, short=12))  # as a CPU has it
    num_blocks = models.flow.num_free_blocks + _num_held(models.stages)
    yield replace(models.stages, voice_room=room_for(2, models.stages))
    assert models.flow.num_free_blocks + _num_held(models.stages) == num_blocks


def _num_held(stages: Stages) -> int:
    return sum(ready.flow_prompt.num_blocks for ready in stages.voices.values())


def for_one(stages: Stages) -> Stages:
    """With room for one voice, and none in it."""
    for ready in stages.voices.values():
        ready.flow_prompt.give_back(stages.flow)
    return replace(stages, voice_room=room_for(1, stages))


def begun(engine: HandDrivenEngine, name: str, voice: str) -> UtteranceId:
    utterance = engine.submit(name, voice=voice)
    for text in TEXTS:
        engine.core.push_text(utterance, text)
    engine.core.end_text(utterance)
    return utterance


def held(engine: HandDrivenEngine) -> list[str]:
    voices = engine.core._voices._voices
    return sorted(name for name, each in voices.items() if each.flow_prompt.rendered is not None)


def twins(voice: Voice, *names: str) -> list[Voice]:
    return [replace(voice, name=name) for name in names]


def test_many_voices_one_after_the_other(stages: Stages) -> None:
    engine = HandDrivenEngine(stages=stages)
    wanted = engine.speak("own", TEXTS, voice="man").pcm
    names = [f"guest{number}" for number in range(5)]
    for voice in twins(stages.voices["man"].voice, *names):
        assert add(engine, voice) is None
    for name in names:
        assert engine.speak(f"with {name}", TEXTS, voice=name).pcm == wanted
    assert len(held(engine)) == 2
    for name in names:
        engine.core.remove_voice(name)


def test_who_is_spoken_with_keeps_his_room(stages: Stages) -> None:
    """The third waits until one of the two has ended, and is heard then; each as if alone."""
    engine = HandDrivenEngine(stages=stages)
    wanted = {name: engine.speak(f"alone {name}", TEXTS, voice=name).pcm for name in ("woman", "man")}
    assert wanted["woman"] != wanted["man"]
    assert add(engine, replace(stages.voices["man"].voice, name="guest")) is None
    assert engine.speak("again", TEXTS, voice="woman").pcm == wanted["woman"]
    assert held(engine) == ["guest", "woman"]
    speaking = {name: begun(engine, name, name) for name in ("woman", "guest", "man")}
    while engine.step():
        for name in ("woman", "guest"):
            if engine.heard[speaking[name]].end is None:
                assert name in held(engine)
    for name, each in speaking.items():
        assert engine.heard[each].pcm == wanted["woman" if name == "woman" else "man"]
    engine.core.remove_voice("guest")


def test_who_waits_for_a_voice_is_in_nobodys_way(stages: Stages) -> None:
    engine = HandDrivenEngine(stages=for_one(stages))
    wanted = engine.speak("own", TEXTS, voice="man").pcm
    assert held(engine) == ["man"]
    first, second = begun(engine, "first", "man"), begun(engine, "second", "man")
    waiting = begun(engine, "waiting", "woman")
    while not (engine.heard[first].end and engine.heard[second].end):
        assert engine.step()
        assert not engine.heard[waiting].events
    assert engine.heard[second].pcm == wanted
    engine.run()
    assert isinstance(engine.heard[waiting].end, Done)


def test_who_waits_for_a_voice_is_heard_though_another_is_spoken_with_all_the_time(stages: Stages) -> None:
    engine = HandDrivenEngine(stages=for_one(stages))
    wanted = {name: engine.speak(f"alone {name}", TEXTS, voice=name).pcm for name in ("woman", "man")}
    others = [begun(engine, "first", "man")]
    engine.step()
    waiting = begun(engine, "waiting", "woman")
    while not engine.heard[waiting].end:
        if sum(engine.heard[each].end is None for each in others) < 2:
            others.append(begun(engine, f"other {len(others)}", "man"))
        assert len(others) < 10, "it would wait for ever"
        assert engine.step()
    engine.run()
    assert engine.heard[waiting].pcm == wanted["woman"]
    assert all(engine.heard[each].pcm == wanted["man"] for each in others), "after it"


def test_a_new_voice_is_refused_while_all_are_spoken_with_and_taken_then(stages: Stages) -> None:
    engine = HandDrivenEngine(stages=stages)
    speaking = [begun(engine, name, name) for name in ("woman", "man")]
    engine.step()
    answer = add(engine, replace(stages.voices["woman"].voice, name="guest"))
    assert type(answer) is Overloaded
    assert "try again when fewer are" in str(answer)
    engine.run()
    assert all(isinstance(engine.heard[each].end, Done) for each in speaking)
    assert add(engine, replace(stages.voices["woman"].voice, name="guest")) is None
    engine.core.remove_voice("guest")


def test_a_new_voice_does_not_wait_behind_one_that_waits_for_room(stages: Stages) -> None:
    engine = HandDrivenEngine(stages=for_one(stages))
    assert isinstance(engine.speak("own", TEXTS, voice="man").end, Done)
    first, waiting = begun(engine, "first", "man"), begun(engine, "waiting", "woman")
    engine.step()
    assert type(add(engine, replace(stages.voices["woman"].voice, name="guest"))) is Overloaded
    assert not engine.heard[first].end
    engine.run()
    assert isinstance(engine.heard[waiting].end, Done)


def test_who_has_nothing_to_say_holds_nobody_up(stages: Stages) -> None:
    """An open utterance whose text is all spoken: its voice may go, and comes back with its next words."""
    engine = HandDrivenEngine(stages=for_one(stages))
    wanted = engine.speak("own", TEXTS, voice="man").pcm
    utterance = engine.submit("open", voice="man")
    engine.core.push_text(utterance, TEXTS[0])
    engine.run()
    assert isinstance(engine.speak("other", TEXTS, voice="woman").end, Done)
    assert held(engine) == ["woman"]
    engine.core.push_text(utterance, TEXTS[1])
    engine.core.end_text(utterance)
    engine.run()
    assert engine.heard[utterance].pcm == wanted


def test_a_voice_that_was_taken_away_keeps_no_room_for_who_has_nothing_to_say(stages: Stages) -> None:
    engine = HandDrivenEngine(stages=stages)
    wanted = {name: engine.speak(f"alone {name}", TEXTS, voice=name).pcm for name in ("woman", "man")}
    guest = replace(stages.voices["woman"].voice, name="guest")
    utterances = {name: engine.submit(f"open {name}", voice=name) for name in wanted}
    for each in utterances.values():
        engine.core.push_text(each, TEXTS[0])
    engine.run()
    for name in utterances:
        engine.core.remove_voice(name)
    assert add(engine, guest) is None
    assert engine.speak("guest", TEXTS, voice="guest").pcm == wanted["woman"]
    for name, each in utterances.items():
        engine.core.push_text(each, TEXTS[1])
        engine.core.end_text(each)
        engine.run()
        assert engine.heard[each].pcm == wanted[name]
    engine.core.remove_voice("guest")


def test_a_long_voice_that_nobody_waits_for_any_more_holds_up_no_short_one(stages: Stages) -> None:
    own = stages.voices["woman"].voice
    long = replace(own, name="long", speech_tokens=own.speech_tokens.repeat(2), mel=own.mel.repeat(2, 1))
    engine = HandDrivenEngine(stages=replace(stages, voice_room=VoiceRoom((long.num_tokens,))))
    assert add(engine, long) is None
    for name in ("woman", "man"):
        assert isinstance(engine.speak(f"alone {name}", TEXTS, voice=name).end, Done)
    engine.core._voices["man"].flow_prompt.give_back(stages.flow)
    speaking = engine.submit("speaking", voice="woman")
    engine.core.push_text(speaking, "".join(TEXTS) * 8)
    engine.core.end_text(speaking)
    waiting = begun(engine, "waiting", "long")
    engine.step()
    short = begun(engine, "short", "man")
    engine.core.cancel(waiting, None)
    while not engine.heard[short].end:
        assert engine.step()
    assert not engine.heard[speaking].end
    engine.run()
    engine.core.remove_voice("long")


def test_a_voice_that_cannot_be_rendered_again_ends_who_waits_for_it_alone(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = HandDrivenEngine(stages=for_one(stages))
    assert isinstance(engine.speak("own", TEXTS, voice="man").end, Done)
    lost, other = begun(engine, "lost", "woman"), begun(engine, "other", "man")

    def broken(*_: object) -> None:
        raise RuntimeError("made to fail")

    with monkeypatch.context() as patched:
        patched.setattr(stages.flow, "begin_prompt", broken)
        engine.run()
    assert isinstance(engine.heard[lost].end, Failed)
    assert isinstance(engine.heard[other].end, Done)
    assert isinstance(engine.speak("again", TEXTS, voice="woman").end, Done)


@pytest.mark.parametrize("num_steps", [0, 3, 15])
def test_a_voice_that_goes_while_it_comes_back_leaves_nothing(stages: Stages, num_steps: int) -> None:
    engine = HandDrivenEngine(stages=stages)
    for voice in twins(stages.voices["woman"].voice, "a", "b"):
        assert add(engine, voice) is None
    assert engine.core._voices["a"].flow_prompt.rendered is not None
    assert isinstance(engine.speak("woman", TEXTS, voice="woman").end, Done)
    assert held(engine) == ["b", "woman"]
    utterance = begun(engine, "u", "a")
    for _ in range(num_steps):
        engine.step()
    engine.core.cancel(utterance, None)
    engine.core.remove_voice("a")
    engine.core.remove_voice("b")
    engine.run()
    assert held(engine) in (["woman"], ["woman", "man"])
