"""The gateway's settings reach the engine; what is unset stays the engine's default."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import EngineConfig
from gateway.cli.local import engine_config
from gateway.config import GatewayConfig

pytestmark = pytest.mark.unit


def test_settings_of_the_engine() -> None:
    config = GatewayConfig(model_dir=Path("m"), device="cpu", threads=3, max_utterances=7, lead_ms=900, stall_ms=0)
    chosen = engine_config(config)
    assert chosen == EngineConfig(Path("m"), device="cpu", threads=3, max_utterances=7, lead_ms=900, stall_ms=0)
    assert GatewayConfig().stall_ms == EngineConfig(Path("m")).stall_ms
    unset = engine_config(replace(config, max_utterances=None, threads=None))
    assert (unset.max_utterances, unset.threads) == (EngineConfig(Path("m")).max_utterances, None)
