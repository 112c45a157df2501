"""The JavaScript client as npm installs it, in Node.js: it hears what the Python client hears, on a bad network too.

One Node.js process makes all trials for each kind of WebSocket; a test looks at one of them.
"""

import asyncio
import json
import os
import random
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright._impl._driver import compute_driver_executable

from tests.integration.chaos_proxy import ChaosProxy
from tests.integration.wire_client import serving
from tests.support.npm import CLIENT, PLAYER, install_packed, manifest
from tests.support.patience import PATIENCE_S
from tests.support.ports import reserved_port
from tests.unit.protocol.test_vectors import VECTORS
from voicegate import __version__
from voicegate.clients.python.client import connect
from voicegate.engine.fake.engine import Fault, FaultKind, Script
from voicegate.engine.interface import Overloaded
from voicegate.gateway.auth.key_file import add_key
from voicegate.gateway.auth.keyring import Key, digest_of

HERE = Path(__file__).parent / "javascript"
PACKAGE, PLAYER_PACKAGE = manifest(CLIENT), manifest(PLAYER)
PACKAGES = Path(sys.prefix) / "javascript/node_modules"  # of others; among them `ws`
COMPILER = Path(sys.prefix) / "typescript/node_modules/typescript/lib/tsc.js"
COMPILER_OPTIONS = (
    *("--noEmit", "--strict", "--noImplicitAny", "false", "--allowJs", "--pretty", "false"),
    *("--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable,dom.asynciterable"),
)
SAID: Final = "Hello there, world."
LONG: Final = "Well, that is a long story. " * 40
SECRET: Final = "vg_0123456789abcdef"
SLOW: Final = Script(real_time_factor=0.05)
REFUSING: Final = Script(
    refusals={0: Overloaded("full", retry_after_ms=250)}, faults={1: Fault(FaultKind.FAIL, after_ms=200)}
)
WORDS: Final = ("sooner", "or", "later", "every", "wire", "is", "cut,", "😀", "and", "42", "times.")
README_BLOCK: Final = re.compile(r"```js\n(.*?)```", re.DOTALL)

Told = Mapping[str, Any]


def texts_of(num_texts: int) -> list[list[str]]:
    drawn = random.Random(5)
    return [[f"{drawn.choice(WORDS)} " for _ in range(60)] for _ in range(num_texts)]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project's folder with what `npm pack` makes of both packages."""
    folder = tmp_path_factory.mktemp("app")
    install_packed(folder)
    shutil.copy(HERE / "client.mjs", folder)
    return folder


async def node(app: Path, *arguments: str) -> asyncio.subprocess.Process:
    executable, _ = compute_driver_executable()  # the one that comes with Playwright
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    environment = {name: value for name, value in os.environ.items() if name != "VOICEGATE_API_KEY"}
    return await asyncio.create_subprocess_exec(
        executable, *arguments, cwd=app, env=environment, limit=1 << 26, **pipes
    )


@asynccontextmanager
async def proxies(folder: Path) -> AsyncIterator[tuple[dict[str, str], ChaosProxy]]:
    """The gateways' addresses by name, and the bad network before one of them."""
    add_key(folder / "keys", Key("ann", digest_of(SECRET)))
    kinds: dict[str, tuple[Script | None, dict[str, Any]]] = {
        "whole": (None, {}),
        "streamed": (None, {}),
        "slow": (SLOW, {}),
        "refusing": (REFUSING, {"waiting_s": 0.0}),
        "keyed": (None, {"api_keys_file": folder / "keys"}),
        "full": (None, {"max_sockets": 1}),
        "uncut": (None, {}),
        "cut": (None, {}),
    }
    async with AsyncExitStack() as stack:
        urls = {}
        for name, (script, settings) in kinds.items():
            urls[name] = (await stack.enter_async_context(serving(script, **settings))).url
        proxy = ChaosProxy(urls["cut"], seed=3)
        await stack.enter_async_context(proxy.running())
        nobody = stack.enter_context(reserved_port())
        yield {**urls, "cut": proxy.url, "nobody": f"ws://127.0.0.1:{nobody}"}, proxy


async def try_all(app: Path, folder: Path, socket: Path | None) -> Told:
    vectors = {path.stem: json.loads(path.read_text()) for path in VECTORS.glob("*.json")}
    plan = {"said": SAID, "long": LONG, "key": SECRET, "texts": texts_of(3), "vectors": vectors}
    async with asyncio.timeout(5 * PATIENCE_S), proxies(folder) as (urls, proxy):
        process = await node(app, "client.mjs")
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = json.dumps({**plan, "urls": urls, "socket": socket and str(socket)})
            process.stdin.write(f"{line}\n".encode())
            assert await process.stdout.readline() == b"connected\n"
            proxy.is_wild = True
            process.stdin.write(b"go\n")
            told = await process.stdout.read()
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    result: dict[str, Any] = json.loads(told)
    return {**result, "num_cuts": proxy.num_cuts}


@pytest.fixture(scope="module")
def websocket() -> Path:
    """The module of the package `ws`."""
    module = PACKAGES / "ws/wrapper.mjs"
    if not module.exists():
        reason = "no packages for Node.js: deploy/setup_node.sh installs them"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return module


@pytest.fixture(scope="module", params=["its own", "ws"])
def told(request: pytest.FixtureRequest, app: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Outcome of each trial, with the WebSocket that Node.js has and with the package that older ones need."""
    socket: Path | None = None if request.param == "its own" else request.getfixturevalue("websocket")
    return asyncio.run(try_all(app, tmp_path_factory.mktemp("keys"), socket))


async def python_packets() -> list[bytes]:
    async with serving() as served, connect(served.url) as gate:
        return [packet async for packet in gate.speak(SAID)]


async def test_a_whole_text_is_heard_as_the_python_client_hears_it(told: Told) -> None:
    packets = await python_packets()
    assert told["whole"] == [[number * 960, packet.hex()] for number, packet in enumerate(packets)]


async def test_a_text_that_is_being_written_is_heard_with_its_words(told: Told) -> None:
    streamed = told["streamed"]
    # FakeEngine times no full stop that comes after a chunk of audio is full.
    assert "".join(streamed["words"]).replace(" ", "").startswith("Hellothere,world")
    assert streamed["flushed"] == ["all"]
    assert streamed["finished"]["reason"] == "done"
    assert [packet for _, packet in streamed["packets"]][:20] == [packet.hex() for packet in await python_packets()][
        :20
    ]
    assert streamed["endPts48k"] - streamed["finished"]["audioMs"] * 48 == 312  # the pre-skip


async def test_cancel_tells_what_was_heard(told: Told) -> None:
    cancel = told["cancel"]
    async with serving(SLOW) as served, connect(served.url) as gate:
        context = await gate.open()
        await context.say(LONG)
        await context.end()
        async for audio in context:
            if audio.pts_48k >= 48_000:
                break
        expected = await context.cancel(played_ms=700)
    assert expected.spoken_text != ""
    assert (cancel["split"]["spokenText"], cancel["split"]["remainingText"]) == (
        expected.spoken_text,
        expected.remaining_text,
    )
    assert (cancel["again"]["spokenText"], cancel["again"]["remainingText"]) == ("", LONG)
    assert cancel["rest"] == []
    assert cancel["said"]["code"] == "closed"
    assert cancel["left"] == 3
    assert cancel["after"] > 0


async def test_a_cancel_after_the_end_splits_at_what_was_heard(told: Told) -> None:
    whole, part = told["afterTheEnd"]["whole"], told["afterTheEnd"]["part"]
    assert (whole["spokenText"], whole["remainingText"]) == (SAID, "")
    assert part["spokenText"] + part["remainingText"] == SAID
    assert part["spokenText"]
    assert part["remainingText"]


async def test_errors_have_a_code(told: Told) -> None:
    errors = told["errors"]
    assert (errors["overloaded"]["code"], errors["overloaded"]["retryAfterMs"]) == ("overloaded", 250)
    assert errors["failed"]["code"] == "engine_failed"
    assert errors["failed"]["numHeard"] > 0, "what came before is heard"
    assert errors["unknownVoice"]["code"] == "unknown_voice"
    assert "nobody" in errors["unknownVoice"]["message"]
    assert (errors["option"]["name"], "vioce" in errors["option"]["message"]) == ("TypeError", True)
    assert errors["text"]["name"] == "TypeError"
    assert errors["source"] == {"name": "RangeError", "message": "the LLM is gone"}
    assert errors["after"] > 0
    assert errors["lost"] == ["failed", "connection_lost"]
    assert errors["closed"]["code"] == "closed"


async def test_a_reader_that_does_not_read_is_told(told: Told) -> None:
    unread = told["unread"]
    assert (unread["code"], unread["numHeard"], unread["cancelled"]) == ("reader_too_slow", 0, [None])
    assert unread["numMessages"] * 60_000 > 8 << 20


async def test_a_gateway_that_lets_nobody_in_says_why(told: Told) -> None:
    keys = told["keys"]
    assert keys["heard"] > 0
    assert keys["none"]["code"] == "unauthorized"
    assert "api_key" in keys["unfit"]["message"]
    assert told["full"]["code"] == "overloaded"
    assert told["full"]["retryAfterMs"] > 0
    assert keys["nobody"]["code"] == "connect_failed"
    assert "looks like ws://" in keys["address"]["message"]
    assert '"ws"' in keys["socketless"]["message"]


async def test_an_option_that_cannot_be_written_leaves_nothing_behind(told: Told) -> None:
    unwritable = told["unwritable"]
    assert (unwritable["refused"]["name"], unwritable["id"]) == ("TypeError", "x")


async def test_close_does_not_wait_for_a_network_that_has_vanished(told: Told) -> None:
    assert told["vanished"] == "closed"


async def test_through_a_bad_network_nothing_is_lost_and_nothing_comes_twice(told: Told) -> None:
    cut, uncut = told["cut"], told["uncut"]
    assert uncut["numResumed"] == 0
    assert told["num_cuts"] >= cut["numResumed"] > 2

    # How many items there are depends on when text came; what does not sound is in none.
    def heard(result: Any) -> Any:
        return {**result, "words": "".join(char for char in "".join(result["words"]) if char.isalnum())}

    for result, expected in zip(cut["results"], uncut["results"], strict=True):
        assert heard(result) == heard(expected)
        pts_48k = [pts for pts, _ in result["packets"]]
        assert pts_48k == [number * 960 for number in range(len(pts_48k))]


async def test_golden_vectors_are_read(told: Told) -> None:
    vectors = {path.stem: json.loads(path.read_text()) for path in VECTORS.glob("*.json")}
    for read, row in zip(told["vectors"]["audio"], vectors["audio_messages"], strict=True):
        fields = row["fields"]
        assert read["packets"] == fields["packets"]
        assert [read[name] for name in ("handle", "sequence", "pts48k", "isFirst", "isLast", "isDiscontinuity")] == [
            fields[name] for name in ("handle", "sequence", "pts_48k", "is_first", "is_last", "is_discontinuity")
        ]
    assert set(told["vectors"]["badAudio"]) == {"WireError"}
    assert told["vectors"]["server"] == [json.loads(row["json"]) for row in vectors["server_messages"]]
    texts = [row["fields"] for row in vectors["client_messages"] if row["fields"]["type"] == "text"]
    assert [json.loads(text) for text in told["vectors"]["text"]] == texts


async def test_no_rejection_is_left_unhandled(told: Told) -> None:
    assert told["unhandled"] == []


async def run_lines(app: Path, lines: str, *flags: str) -> None:
    async with asyncio.timeout(PATIENCE_S), serving(SLOW) as served:
        (app / "lines.mjs").write_text(lines.replace("ws://127.0.0.1:8080", served.url))
        process = await node(app, *flags, "lines.mjs")
        printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    assert printed.startswith(b"0 ")
    assert b"spokenText: 'Well, that" in printed


async def test_the_lines_of_the_readme_run(app: Path, tmp_path: Path) -> None:
    found = README_BLOCK.search((CLIENT / "README.md").read_text())
    assert found is not None
    await run_lines(shutil.copytree(app, tmp_path / "app"), found[1])


async def test_the_lines_of_the_readme_run_as_in_node_20(app: Path, tmp_path: Path, websocket: Path) -> None:
    """Which has no WebSocket: the README says what to add."""
    readme = (CLIENT / "README.md").read_text()
    found = README_BLOCK.search(readme)
    importing, connecting = 'import { WebSocket } from "ws"', "connect(url, { WebSocket })"
    assert found is not None
    assert importing in readme
    assert connecting in readme
    project = shutil.copytree(app, tmp_path / "app")
    shutil.copytree(websocket.parent, project / "node_modules/ws")
    lines = found[1].replace('8080")', '8080", { WebSocket })')
    await run_lines(project, f"{importing};\n{lines}", "--no-experimental-websocket")


async def test_the_package_holds_what_it_needs(app: Path) -> None:
    installed = app / "node_modules" / PACKAGE["name"]
    assert sorted(path.name for path in installed.iterdir()) == [
        *("README.md", "client.d.ts", "client.js", "context.js", "errors.js", "package.json", "reception.js"),
    ]
    assert PACKAGE["version"] == __version__
    assert PACKAGE["dependencies"] == {PLAYER_PACKAGE["name"]: __version__}


async def test_the_types_are_those_of_the_client(app: Path, tmp_path: Path) -> None:
    if not COMPILER.exists():
        reason = "no TypeScript: deploy/setup_typescript.sh installs it"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    project = shutil.copytree(app, tmp_path / "app")
    shutil.copytree(CLIENT, project / "made", ignore=shutil.ignore_patterns("*.d.ts"))
    shutil.copy(HERE / "client.ts", project)
    process = await node(project, str(COMPILER), *COMPILER_OPTIONS, "client.ts")
    printed, _ = await process.communicate()
    assert (process.returncode, printed.decode()) == (0, "")
