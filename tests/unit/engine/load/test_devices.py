"""Unset parts of a configuration follow the device that it runs on."""

from pathlib import Path

import pytest
import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.load.devices import resolved_for_device


@pytest.mark.parametrize(
    ("capability", "expected"),
    [("AVX512", 12), ("AVX2", 17), ("DEFAULT", 17)],  # the last: ARM, too
)
def test_a_first_block_is_as_long_as_this_processor_needs(
    capability: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert resolved_for_device(EngineConfig(Path("m"), device="cpu")).first_block_tokens == expected
