"""player.d.ts, by the TypeScript compiler: it holds together, fits the README's page, and names what player.js has."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest
from playwright._impl._driver import compute_driver_executable

from voicegate import clients

PLAYER = Path(clients.__file__).parent / "browser/player"
COMPILER = Path(sys.prefix) / "typescript/node_modules/typescript/lib/tsc.js"
OPTIONS = (
    *("--noEmit", "--strict", "--noImplicitAny", "false", "--allowJs", "--pretty", "false"),
    *("--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler"),
    *("--lib", "es2022,dom,dom.iterable,dom.asynciterable"),
)


async def test_the_types_are_those_of_the_player(tmp_path: Path) -> None:
    if not COMPILER.exists():
        reason = "no TypeScript: deploy/setup_typescript.sh installs it"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    shutil.copytree(PLAYER, tmp_path / "made", ignore=shutil.ignore_patterns("*.d.ts", "vendor"))
    for name in ("player.js", "player.d.ts", "wire.d.ts"):
        (tmp_path / "told").mkdir(exist_ok=True)
        shutil.copy(PLAYER / name, tmp_path / "told")
    shutil.copy(Path(__file__).parent / "types/uses.ts", tmp_path)
    node, _ = compute_driver_executable()  # the one that comes with Playwright
    compiling = await asyncio.create_subprocess_exec(
        *(node, COMPILER, *OPTIONS, "uses.ts"), cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await compiling.communicate()
    assert (compiling.returncode, told.decode()) == (0, "")
