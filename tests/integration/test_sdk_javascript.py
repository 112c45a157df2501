"""Other vendors' packages for Node.js, as docs/compatibility.md sets them up: they hear what a native client hears.

One Node.js process speaks for all of them, through a gateway for each trouble.
"""

import asyncio
import base64
import json
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
from playwright._impl._driver import compute_driver_executable

from tests.integration.configurations import configurations
from tests.integration.wire_client import Served, native_turns, serving
from voicegate.engine.fake.engine import Fault, FaultKind, Script
from voicegate.engine.interface import Overloaded

PATIENCE_S = 300
SAID = "Hello there."
HERE = Path(__file__).parent / "javascript"
PACKAGES = Path(sys.prefix) / "javascript"
# Number of blocks for JavaScript, by client of the document.
BLOCKS = {"openai": 1, "elevenlabs": 1, "cartesia": 2, "deepgram": 2, "livekit": 4}
# Faults of the first turn of LiveKit's plugins that stream, after which a second is spoken.
TROUBLED = ("elevenlabs", "cartesia", "deepgram")
TROUBLES = {
    "without room": Script(refusals={0: Overloaded("full", retry_after_ms=100)}),
    "with a fault": Script(faults={0: Fault(FaultKind.FAIL)}),
}


def address_of(served: Served) -> str:
    return urlsplit(served.url).netloc


def is_tls_only(block: str) -> bool:
    return "https://" in block


async def plan_for(stack: AsyncExitStack, certificate: Path) -> dict[str, Any]:
    plain = await stack.enter_async_context(serving())
    in_tls = await stack.enter_async_context(serving(tls_cert=certificate, tls_key=certificate))
    pieces = {}
    for client in BLOCKS:
        for number, block in enumerate(configurations(client, "HOST:8080", "js")):
            address = address_of(in_tls if is_tls_only(block) else plain)
            pieces[f"{client} {number}"] = {"code": block.replace("HOST:8080", address)}
    blocks = configurations("livekit", "HOST:8080", "js")
    for plugin, (trouble, script) in product(TROUBLED, TROUBLES.items()):
        (block,) = (each for each in blocks if f"{plugin}.TTS" in each)
        served = await stack.enter_async_context(serving(script, waiting_s=0.0))
        pieces[f"{plugin} {trouble}"] = {"code": block.replace("HOST:8080", address_of(served)), "turns": 2}
    return {"said": SAID, "pieces": pieces}


async def hear(folder: Path) -> dict[str, list[str] | str]:
    """Runs a client. Returns its output."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    shutil.copy(HERE / "hear.mjs", folder)
    (folder / "node_modules").symlink_to(PACKAGES / "node_modules")
    node, _ = compute_driver_executable()  # the one that comes with Playwright: Debian's is too old for `openai`
    environment = os.environ | {"NODE_EXTRA_CA_CERTS": str(folder / "authority.pem")}
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        plan = await plan_for(stack, folder / "server.pem")
        process = await asyncio.create_subprocess_exec(node, "hear.mjs", cwd=folder, env=environment, **pipes)
        try:
            out, _ = await process.communicate(json.dumps(plan).encode())
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0
    heard: dict[str, list[str] | str] = json.loads(out)
    return heard


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[bytes] | str]:
    """By piece: the audio of its turns, or what failed."""
    if not PACKAGES.is_dir():
        reason = "no packages for Node.js: deploy/setup_node.sh installs them"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    told = asyncio.run(hear(tmp_path_factory.mktemp("javascript")))
    return {
        name: turns if isinstance(turns, str) else [base64.b64decode(audio) for audio in turns]
        for name, turns in told.items()
    }


async def test_each_hears_what_a_native_client_hears(heard: Mapping[str, list[bytes] | str]) -> None:
    blocks = [(client, block) for client in BLOCKS for block in configurations(client, "HOST:8080", "js")]
    assert {client: sum(each == client for each, _ in blocks) for client in BLOCKS} == BLOCKS
    expected = {is_tls: iter(await native_turns([SAID] * len(blocks))) for is_tls in (False, True)}
    spoken = [turns for name, turns in heard.items() if not name.endswith(tuple(TROUBLES))]
    for (client, block), turns in zip(blocks, spoken, strict=True):
        assert not isinstance(turns, str), (block, turns)
        native = next(expected[is_tls_only(block)])
        assert turns[0].startswith(native), block
        assert not any(turns[0][len(native) :]), "LiveKit fills its last frame with silence"
        assert client == "livekit" or len(turns[0]) == len(native)


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("plugin", TROUBLED)
async def test_livekit_ends_a_turn_that_fails_and_speaks_the_next(
    heard: Mapping[str, list[bytes] | str], plugin: str, trouble: str
) -> None:
    """It tries again, but with the text alone that it has not sent: here that is none."""
    turns = heard[f"{plugin} {trouble}"]
    assert not isinstance(turns, str), turns
    _, expected = await native_turns([SAID] * 2)
    assert turns[0] == b""
    assert turns[1].startswith(expected)
