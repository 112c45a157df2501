"""Upstream's own classes behind the smallest server that speaks: a thread a socket, `inference_zero_shot` for a text.

Started by bench.peers.upstream alone, with upstream's checkout and packages on PYTHONPATH; it imports nothing of ours.
On the socket it speaks so much of vLLM-Omni's protocol as a bench's client uses. "ready on PORT" on its output: it is.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from cosyvoice.cli.cosyvoice import AutoModel  # type: ignore[import-not-found]
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

_END_OF_PROMPT = 151_646  # a constant of upstream's code, whatever the tokenizer says
_FIRST_HOP_TOKENS = 25


def load(directory: Path, voice: str, euler_steps: int) -> Any:
    """Its model with the voice of reference.json, unless spk2info.pt has it."""
    told = json.loads((directory / "reference.json").read_text())
    model = AutoModel(model_dir=str(directory))
    if voice not in model.list_available_spks():
        model.add_zero_shot_spk(told["transcript"], str(directory / told["audio"]), voice)
    end_of_prompt = model.frontend.tokenizer.tokenizer.convert_tokens_to_ids("<|endofprompt|>")
    if end_of_prompt != _END_OF_PROMPT:
        table = model.model.llm.llm.model.model.embed_tokens
        look_up = table.forward
        table.forward = lambda ids: look_up(torch.where(ids == _END_OF_PROMPT, end_of_prompt, ids))
    solve = model.model.flow.decoder.forward
    model.model.flow.decoder.forward = lambda **named: solve(**{**named, "n_timesteps": euler_steps})
    return model


def pieces(socket: ServerConnection) -> Iterator[str]:
    """As they come, until the text ends, or nobody is there to write it."""
    with suppress(ConnectionClosed):
        while (message := json.loads(socket.recv()))["type"] != "input.done":
            yield message["text"]


def answer(model: Any, voice: str, is_growing: bool, socket: ServerConnection) -> None:
    with suppress(ConnectionClosed):
        while True:
            socket.recv()  # session.config
            text = pieces(socket)
            # Upstream lets it grow for the life of the process: later texts would be heard seconds later.
            model.model.token_hop_len = _FIRST_HOP_TOKENS
            given = text if is_growing else "".join(text)
            for made in model.inference_zero_shot(given, "", "", zero_shot_spk_id=voice, stream=True):
                pcm = (made["tts_speech"].flatten().clamp(-1, 1) * 32767).short()
                socket.send(pcm.numpy().tobytes())
            socket.send(json.dumps({"type": "session.done"}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("voice")
    parser.add_argument("--growing", action="store_true", help="a text is a generator, not a string")
    parser.add_argument("--euler-steps", type=int, required=True)
    options = parser.parse_args()
    model = load(options.model, options.voice, options.euler_steps)
    with serve(partial(answer, model, options.voice, options.growing), "127.0.0.1", 0) as server:
        sys.stdout.write(f"ready on {server.socket.getsockname()[1]}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
