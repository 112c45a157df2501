"""Enrolment: the cost of adding a voice for a listener with speech on its way, and for new requests one after another.

    python -m voicegate.bench.engine.enrolment [--model DIR] [--threads N] [--json FILE]

Beside `nothing`, beside `engine` (`Engine.add_voice`, as POST /v1/voices does) and beside `command` (`voicegate voices
add` in a process of its own, on a copy of the model's directory). `standstill_ms` is the longest that the engine had
work and its pulse did not change, which is what a watchdog sees; `loop_late_ms` how late the event loop ever was. One
recording, of the longest that an engine has room for. Needs a machine with nothing else to do.
"""

import argparse
import asyncio
import io
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import soundfile

from voicegate.bench import environment, results_file
from voicegate.bench.engine.driver import Driver, Speech, driving
from voicegate.bench.engine.texts import Script
from voicegate.bench.sentences import AGENT, SHORT
from voicegate.clients.bench.stats import summary
from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import Engine, SpeakingMode
from voicegate.engine.load.build import create_engine
from voicegate.gateway.logs import configure_logs

_TINY: Final = environment.REPOSITORY / "models" / "tiny"
_KINDS: Final = ("nothing", "engine", "command")
_LISTENED: Final = " ".join(AGENT)
# Before a voice is added, the listener is ahead by then.
_SETTLE_S: Final = 4.0
_NOTHING_S: Final = 15.0
# Between a newcomer's end and the next: the engine is not to be full of them.
_REST_S: Final = 2.0
# Between two looks at the pulse and at the event loop. Lower steals more from what is measured.
_LOOK_S: Final = 0.005


class Standstill:
    """The longest that a pulse stayed the same, looked at from a thread of its own."""

    def __init__(self, engine: Engine) -> None:
        self.longest_s = 0.0
        self._engine = engine
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Standstill":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        pulse, since_s = self._engine.pulse, time.monotonic()
        while not self._is_over.wait(_LOOK_S):
            now, now_s = self._engine.pulse, time.monotonic()
            if now is not None and now == pulse:
                self.longest_s = max(self.longest_s, now_s - since_s)
            else:
                pulse, since_s = now, now_s


class Lateness:
    """Lateness of the event loop."""

    worst_s = 0.0

    async def watch(self) -> None:
        while True:
            due_s = time.monotonic() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            self.worst_s = max(self.worst_s, time.monotonic() - due_s)


@asynccontextmanager
async def _beside(task: "asyncio.Task[None]") -> AsyncIterator[None]:
    try:
        yield
    finally:
        task.cancel()


def longest_recording(recording: Path) -> bytes:
    """Said over and over, as long as the spare room of an engine is."""
    samples, rate_hz = soundfile.read(recording, dtype="float32")
    seconds = EngineConfig(_TINY).spare_voice_tokens / units.TOKEN_RATE_HZ
    file = io.BytesIO()
    soundfile.write(file, np.resize(samples, int(seconds * rate_hz)), rate_hz, format="WAV")
    return file.getvalue()


async def _add(kind: str, engine: Engine, model_dir: Path, recording: bytes) -> None:
    match kind:
        case "nothing":
            await asyncio.sleep(_NOTHING_S)
        case "engine":
            await engine.add_voice("guest", recording)
        case _:
            await asyncio.to_thread(_add_by_command, model_dir, recording)


def _add_by_command(model_dir: Path, recording: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        copy, wav = Path(directory, "model"), Path(directory, "guest.wav")
        shutil.copytree(model_dir, copy)
        wav.write_bytes(recording)
        command = ["voices", "add", "guest", "--model-dir", str(copy), "--wav", str(wav)]
        subprocess.run([sys.executable, "-m", "voicegate", *command], check=True, stdout=subprocess.DEVNULL)


async def _newcomers(driver: Driver, voice: str, adding: "asyncio.Task[None]") -> list[float]:
    first_audio_ms = []
    while not adding.done():
        newcomer = driver.start(Script(SHORT, (SHORT,), 0.0), voice)
        await asyncio.shield(newcomer.ended)
        first_audio_ms.append(newcomer.judged(time.monotonic()).first_audio_ms)
        await asyncio.wait([adding], timeout=_REST_S)
    adding.result()
    return first_audio_ms


async def measure(kind: str, *, model_dir: Path, threads: int | None) -> dict[str, Any]:
    """`kind`: one of _KINDS."""
    engine = create_engine(EngineConfig(model_dir, device="cpu", threads=threads))
    await engine.start()
    voice = engine.info.default_voice
    recording = longest_recording(_TINY / "voices" / "slt_prompt.wav")
    try:
        async with driving(engine, Speech(SpeakingMode.CLAUSE)) as driver:
            listener = driver.start(Script(_LISTENED, (_LISTENED,), 0.0), voice)
            await asyncio.sleep(_SETTLE_S)
            lateness = Lateness()
            with Standstill(engine) as standstill:
                async with _beside(asyncio.create_task(lateness.watch())):
                    began_s = time.monotonic()
                    adding = asyncio.create_task(_add(kind, engine, model_dir, recording))
                    first_audio_ms = await _newcomers(driver, voice, adding)
                    took_s = time.monotonic() - began_s
            gap_ms = listener.judged(time.monotonic()).worst_buffered_underrun_ms
    finally:
        await engine.close()
    return {
        "seconds": round(took_s, 2),
        "worst_gap_ms": round(gap_ms or 0.0, 1),
        "standstill_ms": round(1000 * standstill.longest_s, 1),
        "loop_late_ms": round(1000 * lateness.worst_s, 1),
        "newcomer_first_audio_ms": summary(first_audio_ms),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=_TINY, metavar="DIR")
    parser.add_argument("--threads", type=int, help="of torch (default: one a core)")
    parser.add_argument("--kinds", nargs="+", choices=_KINDS, default=list(_KINDS))
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    configure_logs("error", "console")

    def beside(kind: str) -> dict[str, Any]:
        return asyncio.run(measure(kind, model_dir=options.model, threads=options.threads))

    results_file.gather(beside, options.kinds, options.json)


if __name__ == "__main__":
    main()
