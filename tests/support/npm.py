"""The project's packages for JavaScript, as npm installs them."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.support.patience import PATIENCE_S
from tests.support.programs import required
from voicegate import clients

CLIENTS: Final = Path(clients.__file__).parent
CLIENT: Final = CLIENTS / "javascript"
PLAYER: Final = CLIENTS / "browser/player"
LIVEKIT: Final = CLIENTS / "livekit-node"


def manifest(package: Path) -> dict[str, Any]:
    """The package.json of a package's folder."""
    found: dict[str, Any] = json.loads((package / "package.json").read_text())
    return found


def install_packed(folder: Path, *others: Path) -> None:
    """Makes `folder` a project that has what `npm pack` makes of the client, the player and others."""
    packages = (PLAYER, CLIENT, *others)

    def npm(*arguments: str | Path) -> None:
        command = (required("npm"), *arguments, "--no-audit", "--no-fund", "--loglevel=error")
        subprocess.run(command, cwd=folder, check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)

    npm("pack", *packages)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    packed = [f"./{each['name']}-{each['version']}.tgz" for each in map(manifest, packages)]
    npm("install", "--offline", "--legacy-peer-deps", *packed)  # LiveKit's package is put there, not fetched
