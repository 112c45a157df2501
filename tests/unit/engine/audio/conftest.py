"""Pools of real encoder processes."""

from collections.abc import Iterator

import pytest

from voicegate.engine.audio.encoder_pool import EncoderProcesses


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
