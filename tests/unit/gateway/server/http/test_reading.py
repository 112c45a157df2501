"""`POST /v1/reading`: what would be said of a text, and what is refused."""

from typing import Any

import orjson
import pytest

from tests.unit.gateway.server.asgi import Answer, ask, stage_of
from voicegate.engine.interface import EngineInfo, SpeakingMode, VoiceInfo
from voicegate.gateway.server.entrance.sites import Sites
from voicegate.gateway.server.http.app import build_app
from voicegate.gateway.server.http.reading import MAX_CHARS
from voicegate.gateway.server.status import Status

INFO = EngineInfo("m", (VoiceInfo("anna", "warm"),), "anna", (SpeakingMode.AUTO,), 312, 8, 3000, languages=("en", "zh"))
READY = Status(None, INFO)


async def read(status: Status = READY, **body: Any) -> Answer:
    app = build_app(stage_of(status, Sites()))
    return await ask(app, "/v1/reading", "POST", body=orjson.dumps(body), content_type="application/json")


async def test_clauses_with_what_is_said() -> None:
    text = 'It costs $3.50. <think>No.</think>Wait <break time="0.5s"/> until 2pm.'
    answer = await read(text=text)
    assert answer.status == 200
    assert answer.json["language"] == "en"
    clauses = answer.json["clauses"]
    assert "".join(clause["text"] for clause in clauses) == text
    assert all(text[clause["char_start"] : clause["char_end"]] == clause["text"] for clause in clauses)
    assert [clause["spoken"] for clause in clauses if clause["spoken"]] == [
        "It costs three dollars and fifty cents.",
        "Wait.",
        "until two P M.",
    ]
    assert [clause["pause_ms"] for clause in clauses if clause["pause_ms"]] == [500]


async def test_language_and_pronunciations() -> None:
    answer = await read(text="我用SQL跑5 km", language="zh", pronunciations={"SQL": "数据库"})
    assert answer.json["clauses"][0]["spoken"] == "我用数据库跑五公里。"
    assert (await read(text="5 km", normalize=False)).json["clauses"][0]["spoken"] == "5 km"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "text"),
        ({"text": "x" * (MAX_CHARS + 1)}, "length"),
        ({"text": "x", "language": "tlh"}, "tlh"),
        ({"text": "x", "pronunciations": {"": "y"}}, "pronunciations"),
    ],
)
async def test_what_cannot_be_read_is_named(body: dict[str, Any], said: str) -> None:
    answer = await read(**body)
    assert answer.status == 400
    assert said in answer.json["error"]["message"]


async def test_before_the_engine_is_ready() -> None:
    answer = await read(Status("warming up", None), text="x")
    assert answer.status == 503
    assert "warming up" in answer.text
