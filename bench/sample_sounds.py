"""The sound files of the README: the embedded voices say a sentence through a real gateway, as MP3.

    python -m voicegate.bench.sample_sounds [--directory docs/sounds] [--model-dir models/tiny] [--voices woman man]

A voice's file is its name. MP3, because every browser plays it.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from voicegate.engine.interface import EngineError
from voicegate.gateway.cli.terminal import CommandError
from voicegate.gateway.config import GatewayConfig

TEXT: Final = "Good morning, and thank you for waiting. Your train to the coast leaves in twenty five minutes."
_SEED: Final = 1  # equal files for equal voices


async def make(model_dir: Path | None, directory: Path, voices: Sequence[str]) -> list[Path]:
    """Returns the files."""
    # They import torch.
    from voicegate.gateway.cli.local import local_gateway  # noqa: PLC0415
    from voicegate.gateway.logs import configure_logs  # noqa: PLC0415

    configure_logs("warning", "console")
    config = GatewayConfig() if model_dir is None else GatewayConfig(model_dir=model_dir)
    async with local_gateway(config) as url:
        address = url.replace("ws://", "http://").partition("/v1/")[0] + "/v1/audio/speech"
        return [await asyncio.to_thread(say, address, voice, directory) for voice in voices]


def say(address: str, voice: str, directory: Path) -> Path:
    asked = {"input": TEXT, "voice": voice, "response_format": "mp3", "seed": _SEED}
    request = Request(address, json.dumps(asked).encode(), {"Content-Type": "application/json"})
    path = directory / f"{voice}.mp3"
    with urlopen(request) as answer:
        path.write_bytes(answer.read())
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("docs/sounds"))
    parser.add_argument("--model-dir", type=Path, help="(default: the embedded model)")
    parser.add_argument("--voices", nargs="+", default=["woman", "man"])
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    try:
        paths = asyncio.run(make(options.model_dir, options.directory, options.voices))
    except (CommandError, EngineError, OSError) as error:
        print(f"sample_sounds: {error}", file=sys.stderr)
        return 1
    for path in paths:
        print(f"{path}: {path.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
