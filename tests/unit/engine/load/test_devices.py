"""Unset parts of a configuration follow the device that it runs on."""

from pathlib import Path

import pytest

from voicegate.engine.config import EngineConfig
from voicegate.engine.llm.cpu import decoder
from voicegate.engine.load.devices import resolved_for_device


@pytest.mark.parametrize(("vectors", "expected"), [("avx2", 12), (None, 17)])  # none: ARM, or no compiler
def test_a_first_block_is_as_long_as_this_machine_needs(
    vectors: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "vectors_of_processor", lambda: vectors)
    monkeypatch.setattr(decoder, "load_library", object)
    assert resolved_for_device(EngineConfig(Path("m"), device="cpu")).first_block_tokens == expected
