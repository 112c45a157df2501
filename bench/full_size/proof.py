"""Proof that a generated source converts, loads and speaks."""

import asyncio
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from voicegate.bench import environment
from voicegate.bench.full_size.engine_dir import MODEL_NAME, write_voice
from voicegate.bench.full_size.source import VOICE_NAME, Sizes, model_config
from voicegate.engine.checkpoint.conversion import ConvertOptions
from voicegate.engine.checkpoint.convert import convert
from voicegate.engine.checkpoint.shapes import expected_shapes
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Codec,
    Done,
    Engine,
    Failed,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.load.build import create_engine, set_threads
from voicegate.engine.load.devices import choose_device
from voicegate.engine.load.family import PARTS
from voicegate.engine.load.progress import Lines
from voicegate.engine.model.config import ModelConfig
from voicegate.gateway.cli.convert import TerminalProgress

# 0.8 s: what a CPU renders in a minute.
_MAX_CLAUSE_TOKENS: Final = 20
_TEXT: Final = "Good morning, how are you?"


class Stopwatch:
    """Seconds and the highest memory so far of each phase."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.phases: dict[str, dict[str, float]] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        print(f"{name} ...", file=sys.stderr, flush=True)
        started_s = time.perf_counter()
        yield
        figures = {
            "seconds": round(time.perf_counter() - started_s, 1),
            # The kernel counts in KiB, and never down; mapped files count while they are in memory.
            "peak_process_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2),
        }
        if self._device.type == "cuda":
            figures["peak_device_gb"] = round(torch.cuda.max_memory_allocated(self._device) / 1e9, 2)
        self.phases[name] = figures


def check(source: Path, target: Path, device_name: str) -> dict[str, Any]:
    """Raises RuntimeError where the engine does not speak as it should."""
    config = EngineConfig(
        target,
        device=device_name,
        max_utterances=1,
        spare_voices=0,
        max_active_clauses=1,
        max_clause_tokens=_MAX_CLAUSE_TOKENS,
        lead_ms=3_600_000,
    )
    set_threads(config)
    device = choose_device(device_name)
    watch = Stopwatch(device)
    with watch.phase("convert"):
        convert(source, target, ConvertOptions(name=MODEL_NAME), TerminalProgress())
    model = model_config(Sizes())
    write_voice(model, {}, target / "voices" / f"{VOICE_NAME}.safetensors", lambda _: None)
    engine = create_engine(config, on_progress=Lines(lambda line: print(line, file=sys.stderr, flush=True)))
    spoken = asyncio.run(_speak(engine, watch))
    files = {str(path.relative_to(target)): path.stat().st_size for path in sorted(target.rglob("*.safetensors"))}
    return {
        "environment": environment.describe() | {"numpy": np.__version__},
        "model": {
            "name": MODEL_NAME,
            "num_parameters": _num_parameters(model),
        },
        "file_bytes": files,
        "phases": watch.phases,
        "spoken": spoken,
    }


async def _speak(engine: Engine, watch: Stopwatch) -> dict[str, Any]:
    with watch.phase("load and warm up"):
        await engine.start()
    pcm = b""
    with watch.phase("speak"):
        utterance_id = UtteranceId("full-size")
        engine.submit(UtteranceRequest(utterance_id, VOICE_NAME, AudioFormat(codec=Codec.PCM_S16LE)))
        engine.push_text(utterance_id, _TEXT)
        engine.end_text(utterance_id)
        while not isinstance(event := await engine.next_event(), Done):
            if isinstance(event, Failed):
                raise RuntimeError(event.message)
            if isinstance(event, AudioReady):
                pcm += b"".join(event.packets)
    await engine.close()
    samples = np.frombuffer(pcm, "<i2").astype(np.float64) / 32_768
    if not len(samples) or not np.abs(samples).max() > 0:
        raise RuntimeError("the engine spoke nothing")
    return {
        "text": _TEXT,
        "audio_ms": event.audio_ms,
        "is_truncated": event.is_truncated,
        "num_samples": len(samples),
        "rms": round(float(np.sqrt(np.mean(samples**2))), 5),
        "peak": round(float(np.abs(samples).max()), 5),
    }


def _num_parameters(model: ModelConfig) -> int:
    return sum(int(np.prod(shape)) for part in PARTS for shape in expected_shapes(part, model).values())
