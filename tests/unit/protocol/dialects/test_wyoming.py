"""Bounds on a peer of Wyoming's."""

from typing import Any

import orjson
import pytest

from tests.unit.protocol.dialects.conversation import READY, find_anna
from voicegate.protocol.dialects.dialect import Hangup
from voicegate.protocol.dialects.wyoming import Wyoming


@pytest.mark.parametrize(
    "data",
    [{"text": "x" * 100_000}, {"voice": {"name": "x" * 100_000}}, {"voice": {"language": "x" * 100_000}}],
    ids=["text", "name", "language"],
)
def test_what_waits_while_a_turn_ends_is_bounded(data: dict[str, Any]) -> None:
    dialect = Wyoming(find_anna)
    dialect.word(READY)
    dialect.receive(orjson.dumps({"type": "synthesize", "data": {"text": "Hello."}}).decode())
    start = orjson.dumps({"type": "synthesize-start", "data": data}).decode()
    effects = [effect for _ in range(4) for effect in dialect.receive(start)]
    assert any(isinstance(effect, Hangup) for effect in effects)
