"""A stand-in for vLLM-Omni's server: its documented protocol alone, without a model. Run as its command line is.

`packages` makes a directory of packages with it. Facts: vLLM-Omni's docs/serving/speech_api.md (0.26).
"""

import argparse
import json
import os
import subprocess
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

LIMIT = "STANDIN_DIES_AFTER_SOCKETS"
# One of: "is never ready", "takes no voice", "refuses sockets", "fails every second text", "has 48 kHz", and "dies in a
# text", the fifth of the second socket.
FAULT = "STANDIN_FAULT"
_ENGINE = "import time; time.sleep(600)"  # a process of its own, as vLLM's are
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
        self._num_texts = 0
        self._fault = os.environ.get(FAULT)

    async def health(self, _: Request) -> Response:
        return Response(status_code=503 if self._fault == "is never ready" else 200)

    async def add_voice(self, request: Request) -> Response:
        form = await request.form()
        audio = form["audio_sample"]
        assert not isinstance(audio, str)
        assert (await audio.read(), form["ref_text"], bool(form["consent"])) == (b"RIFF", "Its words.", True)
        if self._fault == "takes no voice":
            return Response("<html>")
        self._voices.add(str(form["name"]))
        return JSONResponse({"success": True, "voice": {"name": form["name"]}})

    async def speak(self, socket: WebSocket) -> None:
        self._num_sockets += 1
        if self._num_sockets > int(os.environ.get(LIMIT, "1000000")):
            os._exit(1)
        if self._fault == "refuses sockets":
            await socket.send_denial_response(Response("no engine", status_code=500))
            return
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
                        await self._answer(socket, config, text, index)
                        text, index = "", index + 1
                    case _:
                        await socket.send_json({"type": "error", "message": f"not now: {config}"})
        except WebSocketDisconnect:
            pass

    async def _answer(self, socket: WebSocket, config: dict[str, Any], text: str, index: int) -> None:
        assert (config["response_format"], config["stream_audio"]) == ("pcm", True)
        self._num_texts += 1
        place = {"utterance_index": index, "sentence_index": 0}
        rate_hz = 48_000 if self._fault == "has 48 kHz" else 24_000
        start = {"type": "audio.start", **place, "sentence_text": text, "format": "pcm", "sample_rate": rate_hz}
        await socket.send_json(start)
        pcm = b"\x00\x20\x00\xe0" * (rate_hz * len(text) // 40)  # 50 ms a letter, which can be heard
        await socket.send_bytes(pcm[:4800])
        match self._fault:
            case "fails every second text" if self._num_texts % 2 == 0:
                await socket.send_json({"type": "error", "message": "Generation failed: its engine"})
            case "dies in a text" if (self._num_sockets, index) == (2, 4):
                os._exit(1)
            case _:
                await socket.send_bytes(pcm[4800:])
        await socket.send_json({"type": "audio.done", **place, "total_bytes": len(pcm)})
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
    subprocess.Popen([sys.executable, "-c", _ENGINE])
    routes = [
        Route("/health", server.health),
        Route("/v1/audio/voices", server.add_voice, methods=["POST"]),
        WebSocketRoute("/v1/audio/speech/stream", server.speak),
    ]
    uvicorn.run(Starlette(routes=routes), host=options.host, port=int(options.port))
