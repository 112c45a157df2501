"""Pools of real encoder processes."""

from collections.abc import Iterator

import pytest

from tests.support.patience import PATIENCE_S
from voicegate.engine.audio import encoder_pool
from voicegate.engine.audio.encoder_pool import EncoderProcesses


@pytest.fixture(autouse=True)
def an_end_waits_for_what_a_busy_machine_still_encodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_pool, "_CLOSE_TIMEOUT_S", PATIENCE_S)


@pytest.fixture
def two() -> Iterator[EncoderProcesses]:
    pool = EncoderProcesses(2)
    yield pool
    pool.close()


@pytest.fixture
def one() -> Iterator[EncoderProcesses]:
    pool = EncoderProcesses(1)
    yield pool
    pool.close()
