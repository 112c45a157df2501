"""The plugin for LiveKit's agents in Node.js, as npm packs it, with the real `@livekit/agents`."""

import asyncio
import base64
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from playwright._impl._driver import compute_driver_executable

from tests.integration.test_client_javascript import COMPILER
from tests.integration.wire_client import native_turns, serving
from tests.support.npm import LIVEKIT, install_packed
from tests.support.patience import PATIENCE_S
from voicegate.engine.fake.engine import Script
from voicegate.engine.interface import Overloaded

SCRIPT: Final = Path(__file__).parent / "javascript/livekit.mjs"
PACKAGES: Final = Path(sys.prefix) / "javascript/node_modules"
SAID: Final = (
    "Hello there, this is - a story of " + "many words " * 10 + "and more. - -"
)  # whose last signs are not said
FULL: Final = Script(refusals={0: Overloaded("full", retry_after_ms=1)})


async def node(app: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    executable, _ = compute_driver_executable()  # the one that comes with Playwright
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(executable, *arguments, cwd=app, **pipes)
    try:
        out, _ = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
    return out


async def try_all(app: Path) -> dict[str, Any]:
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        serving() as whole,
        serving(FULL, waiting_s=0.0) as full,
        serving(Script(real_time_factor=1.0)) as slow,
    ):
        urls = {"whole": whole.url, "full": full.url, "slow": slow.url}
        out = await node(app, SCRIPT.name, stdin=json.dumps({"urls": urls, "said": SAID}).encode())
        await slow.until(lambda engine: engine.num_live == 0)
        heard: dict[str, Any] = json.loads(out)
        return {**heard, "cancels": len(slow.engine.cancels)}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (PACKAGES / "@livekit").is_dir():
        reason = "no packages for Node.js: deploy/setup_node.sh installs them"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    folder = tmp_path_factory.mktemp("app")
    install_packed(folder, LIVEKIT)
    (folder / "node_modules/@livekit").symlink_to(PACKAGES / "@livekit")
    (folder / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
    return folder


@pytest.fixture(scope="module")
def heard(app: Path) -> dict[str, Any]:
    return asyncio.run(try_all(app))


def audio_of(told: dict[str, Any]) -> bytes:
    return base64.b64decode(told["audio"])


@pytest.mark.parametrize("trial", ["streamed", "whole", "retried"])
async def test_it_is_heard_whole_with_its_words(heard: dict[str, Any], trial: str) -> None:
    told = heard[trial]
    (first, second) = await native_turns([SAID] * 2)
    assert audio_of(told) == (first if trial == "streamed" else second)
    assert (told["text"].rstrip(), told["isFinal"]) == (SAID, True)
    assert told["starts"] == sorted(told["starts"])
    assert len(told["starts"]) == len(SAID.replace("-", "").split()) + 1, "and the rest"
    assert told["errors"] == []


async def test_its_metrics_are_livekits(heard: dict[str, Any]) -> None:
    (metrics,) = heard["streamed"]["metrics"]
    assert metrics["ttfbMs"] >= 0
    assert metrics["audioDurationMs"] == pytest.approx(len(audio_of(heard["streamed"])) / 48, abs=1)


async def test_who_interrupts_hears_no_more_and_the_server_makes_no_more(heard: dict[str, Any]) -> None:
    told = heard["interrupted"]
    assert heard["cancels"] == 1
    assert len(audio_of(told)) == 10 * 960
    assert SAID.startswith(told["text"])
    assert told["errors"] == []


async def test_what_cannot_be_said_is_told_once(heard: dict[str, Any]) -> None:
    """And is not tried again: it would fail again."""
    (error,) = heard["refused"]["errors"]
    assert "nobody" in error
    assert audio_of(heard["refused"]) == b""


async def test_a_server_that_is_not_there_is_tried_again_and_told(heard: dict[str, Any]) -> None:
    (error,) = heard["absent"]["errors"]
    assert "cannot connect" in error


async def test_the_lines_of_the_readme_make_a_session(app: Path) -> None:
    found = re.search(r"```js\n(.*?)```", (LIVEKIT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    lines = f'import {{ initializeLogger }} from "@livekit/agents";\nlet llm;\n{found[1]}'
    lines = lines.replace("const tts", 'initializeLogger({ pretty: false, level: "silent" });\nconst tts')
    (app / "lines.mjs").write_text(f"{lines}\nconsole.log(session.tts === tts, tts.provider);\nprocess.exit(0);\n")
    async with asyncio.timeout(PATIENCE_S):
        assert await node(app, "lines.mjs") == b"true voicegate\n"


async def test_its_types_fit_livekits(app: Path) -> None:
    if not COMPILER.exists():
        reason = "no TypeScript: deploy/setup_typescript.sh installs it"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    (app / "types.ts").write_bytes(SCRIPT.with_suffix(".ts").read_bytes())
    options = ("--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext")
    async with asyncio.timeout(PATIENCE_S):
        await node(app, str(COMPILER), *options, "--lib", "es2022,dom", "types.ts")
