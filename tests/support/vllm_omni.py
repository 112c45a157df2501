"""A stand-in for vLLM-Omni's server: its documented protocol alone, without a model. Run as its command line is.

`packages` makes a directory of packages with it. Facts: vLLM-Omni's docs/serving/speech_api.md (0.26).
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

_LIMIT = "STANDIN_DIES_AFTER_SOCKETS"
_DEPLOY = {"stages": [{"stage_id": 0, "max_num_seqs": 8}, {"stage_id": 1, "max_num_seqs": 8}]}


def packages(directory: Path) -> Path:
    """As `pip install --target` leaves them."""
    main = directory / "vllm_omni" / "entrypoints" / "cli" / "main.py"
    main.parent.mkdir(parents=True)
    main.write_text("from tests.support.vllm_omni import main\n\nmain()\n")
    for folder in (main.parents[2], main.parents[1], main.parents[0]):
        (folder / "__init__.py").touch()
    deploy = directory / "vllm_omni" / "deploy" / "cosyvoice3.yaml"
    deploy.parent.mkdir()
    deploy.write_text(yaml.safe_dump(_DEPLOY))
    for name in ("vllm", "vllm-omni"):
        info = directory / f"{name.replace('-', '_')}-0.26.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.26.0\n")
    return directory


def model(directory: Path, voice: str) -> Path:
    directory.mkdir()
    (directory / "reference.wav").write_bytes(b"RIFF")
    reference = {"audio": "reference.wav", "transcript": "Its words.", "voice": voice}
    (directory / "reference.json").write_text(json.dumps(reference))
    return directory


class _Server:
    def __init__(self) -> None:
        self._voices: set[str] = set()
        self._num_sockets = 0

    async def health(self, _: Request) -> Response:
        return Response()

    async def add_voice(self, request: Request) -> Response:
        form = await request.form()
        audio = form["audio_sample"]
        assert not isinstance(audio, str)
        assert (await audio.read(), form["ref_text"], bool(form["consent"])) == (b"RIFF", "Its words.", True)
        self._voices.add(str(form["name"]))
        return JSONResponse({"success": True, "voice": {"name": form["name"]}})

    async def speak(self, socket: WebSocket) -> None:
        self._num_sockets += 1
        if self._num_sockets > int(os.environ.get(_LIMIT, "1000000")):
            os._exit(1)
        await socket.accept()
        config: dict[str, Any] = {}
        text, index = "", 0
        try:
            while True:
                message = await socket.receive_json()
                match message.pop("type"):
                    case "session.config":
                        config = message
                    case "input.text":
                        text += message["text"]
                    case "input.done" if config.get("voice") in self._voices:
                        await _answer(socket, config, text, index)
                        text, index = "", index + 1
                    case _:
                        await socket.send_json({"type": "error", "message": f"not now: {config}"})
        except WebSocketDisconnect:
            pass


async def _answer(socket: WebSocket, config: dict[str, Any], text: str, index: int) -> None:
    assert (config["response_format"], config["stream_audio"]) == ("pcm", True)
    place = {"utterance_index": index, "sentence_index": 0}
    start = {"type": "audio.start", **place, "sentence_text": text, "format": "pcm", "sample_rate": 24_000}
    await socket.send_json(start)
    pcm = b"\x00\x20\x00\xe0" * (600 * len(text))  # 50 ms a letter, which can be heard
    for chunk in (pcm[:4800], pcm[4800:]):
        await socket.send_bytes(chunk)
    await socket.send_json({"type": "audio.done", **place, "total_bytes": len(pcm), "error": False})
    await socket.send_json({"type": "session.done", "utterance_index": index, "total_sentences": 1})


def main() -> None:
    """The flags of its CosyVoice3 example."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model", type=Path)
    for flag in ("--omni", "--trust-remote-code"):
        parser.add_argument(flag, action="store_true", required=True)
    for flag in ("--tokenizer", "--deploy-config", "--host", "--port", "--stage-init-timeout", "--init-timeout"):
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    sys.stdout.write(f"deploy {Path(options.deploy_config).read_text()}")
    server = _Server()
    routes = [
        Route("/health", server.health),
        Route("/v1/audio/voices", server.add_voice, methods=["POST"]),
        WebSocketRoute("/v1/audio/speech/stream", server.speak),
    ]
    uvicorn.run(Starlette(routes=routes), host=options.host, port=int(options.port))
