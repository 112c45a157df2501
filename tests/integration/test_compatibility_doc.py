"""Lines of docs/compatibility.md and the README, run as they stand. pipecat's and LiveKit's: where bots are."""

import asyncio
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
import trustme
from cartesia import Cartesia
from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1 import SpeakV1Text
from elevenlabs.client import ElevenLabs

from tests.integration.configurations import configurations
from tests.integration.wire_client import TIMEOUT_S, native_turns, serving

# These packages call what websockets and pydantic have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CLIENTS = (openai, Cartesia, DeepgramClient, DeepgramClientEnvironment, ElevenLabs, SpeakV1Text)
SAID = "Hello there."
ROOT = Path(__file__).parents[2]


def audio_of(blocks: list[str]) -> list[bytes]:
    """Audio of each, in one namespace: a later one may go on with an earlier one's client."""
    names: dict[str, Any] = {client.__name__: client for client in CLIENTS}
    heard = []
    for block in blocks:
        exec(block, names)
        heard.append(bytes(names.pop("audio")))
    return heard


@pytest.mark.parametrize(("client", "num_blocks"), [("openai", 1), ("cartesia", 2), ("deepgram", 2)])
async def test_it_runs_as_it_stands(client: str, num_blocks: int) -> None:
    async with asyncio.timeout(TIMEOUT_S), serving() as served:
        heard = await asyncio.to_thread(audio_of, configurations(client, urlsplit(served.url).netloc))
    assert heard == await native_turns([SAID] * num_blocks)


async def test_elevenlabs_by_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    async with asyncio.timeout(TIMEOUT_S), serving() as served:
        by_http, _ = configurations("elevenlabs", urlsplit(served.url).netloc)
        heard = await asyncio.to_thread(audio_of, [by_http])
    both = {"tls_cert": tmp_path / "server.pem", "tls_key": tmp_path / "server.pem"}
    async with asyncio.timeout(TIMEOUT_S), serving(**both) as served:
        _, by_socket = configurations("elevenlabs", urlsplit(served.url).netloc)
        heard += await asyncio.to_thread(audio_of, [by_socket])
    assert heard == [*await native_turns([SAID]), *await native_turns([SAID])]


@pytest.mark.parametrize("document", ["README.md", "docs/compatibility.md"])
async def test_speech_by_curl(document: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl on the PATH")
    found = re.search(r"^curl .*/v1/audio/speech [^#\n]*", (ROOT / document).read_text(), re.MULTILINE)
    assert found is not None
    async with asyncio.timeout(TIMEOUT_S), serving() as served:
        line = found[0].replace("localhost:8080", urlsplit(served.url).netloc)
        curl = await asyncio.create_subprocess_shell(f"{line} --silent --fail", cwd=tmp_path)
        assert await curl.wait() == 0
    assert (tmp_path / "hello.mp3").read_bytes()[:2] in (b"\xff\xf3", b"\xff\xfb", b"ID")
