"""More voices than there is room for: a prompt that is rendered again sounds as before.

Whose room is given back, and when: tests/unit/engine/core/test_voice_turns.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.parity.test_engine_voices import add
from tests.support.stepaudio2_engine import stages_of, write_model
from tests.support.tiny_engine import CONFIG, HandDrivenEngine, stages_with_room_for, tiny_stages
from voicegate.engine.core.stages import Stages, VoiceRoom
from voicegate.engine.interface import Done, SpeakingMode
from voicegate.engine.load.build import load_stages
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import Voice

TEXTS = ["Good day to you. ", "And good night."]


def room_for(num: int, stages: Stages) -> VoiceRoom:
    return VoiceRoom((max(ready.voice.num_tokens for ready in stages.voices.values()),) * num)


@pytest.fixture
def stages() -> Iterator[Stages]:
    """With room for two of the voices that there are."""
    with stages_with_room_for(2) as stages:
        yield stages


def for_one(stages: Stages) -> Stages:
    """With room for one voice, and none in it."""
    for ready in stages.voices.values():
        ready.flow_prompt.give_back(stages.flow)
    return replace(stages, voice_room=room_for(1, stages))


def held(engine: HandDrivenEngine) -> list[str]:
    voices = engine.core._voices._voices
    return sorted(name for name, each in voices.items() if each.flow_prompt.rendered is not None)


def twins(voice: Voice, *names: str) -> list[Voice]:
    return [replace(voice, name=name) for name in names]


@pytest.mark.parametrize(
    "mode",
    [
        SpeakingMode.CLAUSE,
        pytest.param(SpeakingMode.INCREMENTAL, marks=pytest.mark.soak),
        pytest.param(SpeakingMode.BISTREAM, marks=pytest.mark.soak),
    ],
)
def test_who_gave_the_room_back_speaks_as_before(stages: Stages, mode: SpeakingMode) -> None:
    engine = HandDrivenEngine(stages=stages)
    wanted = {name: engine.speak(f"first {name}", TEXTS, voice=name, mode=mode).pcm for name in ("woman", "man")}
    guest = replace(stages.voices["woman"].voice, name="guest")
    assert add(engine, guest) is None
    assert held(engine) == ["guest", "man"], "whose last words are longest ago"
    for name in ("woman", "guest", "man"):
        heard = engine.speak(f"again {name}", TEXTS, voice=name, mode=mode)
        assert isinstance(heard.end, Done)
        assert heard.pcm == wanted["woman" if name == "guest" else name]
        assert len(held(engine)) == 2
    engine.core.remove_voice("guest")


def test_a_start_with_more_voices_than_there_is_room_for() -> None:
    model = tiny_stages().model
    own = load_voices(CONFIG.model_dir, model)
    voices = own | {each.name: each for each in twins(own["man"], *(f"guest{number}" for number in range(5)))}
    stages = load_stages(CONFIG, model, voices)
    few = replace(stages, voice_room=room_for(2, stages))
    engine = HandDrivenEngine(stages=few)
    wanted = engine.speak("own", TEXTS, voice="man").pcm
    assert engine.speak("last", TEXTS, voice="guest4").pcm == wanted


def test_the_second_family_likewise(tmp_path: Path) -> None:
    stages = stages_of(write_model(tmp_path / "model"))
    engine = HandDrivenEngine(stages=for_one(stages))
    wanted = {name: engine.speak(f"first {name}", TEXTS, voice=name).pcm for name in ("woman", "man")}
    for name in ("woman", "man", "woman"):
        assert engine.speak(f"again {name} {len(engine.heard)}", TEXTS, voice=name).pcm == wanted[name]
        assert held(engine) == [name]
