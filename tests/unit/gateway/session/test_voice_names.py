"""Which voice a name of another vendor's gets."""

import time

import pytest

from voicegate.engine.interface import EngineInfo, SpeakingMode, VoiceInfo
from voicegate.gateway.session.voice_names import VoiceNames

INFO = EngineInfo("m", (VoiceInfo("anna", ""), VoiceInfo("bob", "")), "anna", (SpeakingMode.AUTO,), 312, 8, 3000)
NAMES = VoiceNames({"nova": "bob", "bob": "anna", "echo": "gone"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [(None, "anna"), ("bob", "bob"), ("nova", "bob"), ("echo", "anna"), ("alloy", "anna"), ("", "anna")],
)
def test_ours_then_an_alias_then_the_default(name: str | None, expected: str) -> None:
    assert NAMES.resolve(name, INFO) == expected


@pytest.mark.parametrize(
    "mix",
    [
        "anna+bob",
        "anna(2)+bob(1)",
        "anna:0.3,bob:0.7",
        "0.5*anna + 0.5*bob",
        "anna;bob",
        "x|bob",
        "nova+alloy",
        "bob&x",
    ],
)
def test_a_mix_is_none_of_its_voices(mix: str) -> None:
    assert NAMES.resolve(mix, INFO) == mix


@pytest.mark.parametrize("name", ["af_bella+af_sky", "anna-bob", "+", ",", "my anna", "(" * 100_000, " " * 100_000])
def test_what_names_none_of_ours_is_a_foreign_name_like_any_other(name: str) -> None:
    assert NAMES.resolve(name, INFO) == "anna"


@pytest.mark.parametrize("name", [" " * 170 + ":" + " " * 338 + "x+", "1" * 510 + "+", "(" * 510 + "+"])
def test_no_name_takes_long_to_look_at(name: str) -> None:
    """It is looked at in the event loop."""
    begin_s = time.thread_time()
    for _ in range(50):
        assert NAMES.resolve(name, INFO) == "anna"
    assert time.thread_time() - begin_s < 1, "the slow way took three seconds"


def test_an_alias_may_be_written_as_a_mix() -> None:
    assert VoiceNames({"anna+bob": "bob"}).resolve("anna+bob", INFO) == "bob"


def test_an_alias_of_no_voice_is_told_apart() -> None:
    assert NAMES.astray(INFO) == {"echo": "gone"}
