"""How text is read, over real sockets: language, normalisation, pronunciations of a context and of the server."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.wire_client import closed_with, connect_to, running, serving
from voicegate.clients.python import client as python_client
from voicegate.engine.fake.engine import FakeEngine
from voicegate.engine.interface import UtteranceRequest
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.gateway.server.errors import GatewayError
from voicegate.protocol import messages as wire

TEXT = "SQL in the US"


def said(request: UtteranceRequest) -> str:
    return Pronunciation(request.dictionaries).said(TEXT)


def write(path: Path, content: str | None) -> None:
    """None: there is no such file."""
    if content is None:
        path.unlink()
    else:
        path.write_text(content)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pronunciations.json"
    write(path, '{"sql": "sequel", "US": "you ess"}')
    return path


async def test_what_a_context_asks_for_reaches_the_engine(file: Path) -> None:
    async with serving(pronunciations_file=file) as served:
        async with python_client.connect(served.url) as gate:
            packets = [
                packet
                async for packet in gate.speak(
                    TEXT,
                    language="en-GB",
                    normalize=False,
                    max_buffer_delay_ms=800,
                    pronunciations={"SQL": "my ess queue ell"},
                )
            ]
            assert packets
            assert (gate.ready.family, gate.ready.languages) == ("fake", ("en", "zh"))
            assert (gate.ready.sample_rate, gate.ready.limits.pronunciations) == (24_000, wire.MAX_PRONUNCIATIONS)
        (request,) = served.engine.requests
        assert (request.language, request.is_normalized, request.max_buffer_delay_ms) == ("en-GB", False, 800)
        assert said(request) == "my ess queue ell in the you ess"


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"language": "fr"}, "unsupported", "it speaks en, zh"),
        ({"language": "<|x|>"}, "bad_message", "a tag such as en"),
        ({"pronunciations": {"SQL": "x" * 129}}, "bad_message", "'SQL' has 129 characters; at most 128"),
        ({"pronunciations": {"...": "x"}}, "bad_message", "'...' cannot be looked for"),
        ({"pronunciations": {f"w{n}": "x" for n in range(257)}}, "bad_message", "256"),
        ({"max_buffer_delay_ms": 60_001}, "bad_message", "60000"),
    ],
)
async def test_what_cannot_be_done_ends_the_open_alone(fields: dict[str, Any], code: str, words: str) -> None:
    async with serving() as served, served.client() as client:
        await client.send(wire.Open(context="other"), wire.Text("other", "hello "))
        await client.websocket.send(json.dumps({"type": "open", "context": "a", **fields}))
        error = await client.until(wire.Error)
        assert (error.context, error.code, error.fatal) == ("a", code, True)
        assert words in error.message
        await client.send(wire.End("other"))
        assert (await client.until(wire.Done)).characters == len("hello ")


async def test_the_servers_words_are_read_again_and_a_bad_file_changes_nothing(file: Path) -> None:
    engine = FakeEngine()
    async with running(engine, pronunciations_file=file) as run, connect_to(run.gateway.url) as client:
        heard = []
        for number, content in enumerate([None, '{"us": "everybody"}', "{", '{"US": ""}', '["US"]']):
            if content is not None:
                write(file, content)
                run.gateway.reload()
            await client.speak(str(number), TEXT)
            await client.until_done(str(number))
            heard.append(said(engine.requests[-1]))
        write(file, None)
        run.gateway.reload()
        await client.speak("gone", TEXT)
        await client.until_done("gone")
        heard.append(said(engine.requests[-1]))
    assert heard == ["sequel in the you ess", *["SQL in the everybody"] * 5]
    assert await closed_with(client) is not None


@pytest.mark.parametrize("content", ["{", '{"US": 1}', '{"US": ""}', json.dumps({str(n): "x" for n in range(20_001)})])
async def test_a_server_with_a_bad_file_does_not_start(file: Path, content: str) -> None:
    write(file, content)
    with pytest.raises(GatewayError, match=str(file)):
        async with serving(pronunciations_file=file):
            pass
