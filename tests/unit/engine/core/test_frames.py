"""The way from a step to the text is short: a reader follows it through few functions."""

import inspect

import pytest

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from voicegate.engine.core.core import EngineCore
from voicegate.engine.interface import Done
from voicegate.engine.text.unsaid import UnsaidSplitter

MAX_FRAMES = 10


def test_from_a_step_to_a_character_of_text_are_ten_frames_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[list[str]] = []
    push = UnsaidSplitter.push

    def noted(self: UnsaidSplitter, text: str) -> object:
        names = [frame.function for frame in inspect.stack()[1:]]
        ways.append(names[: names.index(EngineCore.step.__name__) + 1])
        return push(self, text)

    monkeypatch.setattr(UnsaidSplitter, "push", noted)
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    assert isinstance(engine.speak("u", ["Good morning, and welcome back."]).end, Done)
    assert ways
    assert max(map(len, ways)) < MAX_FRAMES, ways[0]
