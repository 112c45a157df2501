"""Which voice a name of another vendor's gets."""

import pytest

from voicegate.engine.interface import EngineInfo, SpeakingMode, VoiceInfo
from voicegate.gateway.session.voice_names import VoiceNames

pytestmark = pytest.mark.unit

INFO = EngineInfo("m", (VoiceInfo("anna", ""), VoiceInfo("bob", "")), "anna", (SpeakingMode.AUTO,), 312, 8, 3000)
NAMES = VoiceNames({"nova": "bob", "bob": "anna", "echo": "gone"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [(None, "anna"), ("bob", "bob"), ("nova", "bob"), ("echo", "anna"), ("alloy", "anna"), ("", "anna")],
)
def test_ours_then_an_alias_then_the_default(name: str | None, expected: str) -> None:
    assert NAMES.resolve(name, INFO) == expected


def test_an_alias_of_no_voice_is_told_apart() -> None:
    assert NAMES.astray(INFO) == {"echo": "gone"}
