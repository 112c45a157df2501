"""What others' text costs: a listener and newcomers beside eight contexts that send 1 MiB each as fast as they can.

    python -m voicegate.bench.engine.text_flood [--json FILE]

`marks` has nothing to say: all that it costs is reading. Of `numbers` every sign is said, so those contexts speak, too;
beside `sentences` eight speak as much and have sent no more: the difference between these two is the text's. The tiny
model on one thread, at the engine's seam. Needs a machine with nothing else to do.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any, Final

from voicegate.bench import environment, results_file
from voicegate.bench.engine.driver import Driver, Speech, Stream, driving
from voicegate.bench.engine.texts import Script
from voicegate.bench.sentences import AGENT, SHORT
from voicegate.clients.bench.stats import summary
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.loading.build import create_engine
from voicegate.gateway.logs import configure_logs

_NUM_FLOODING: Final = 8
_NUM_NEWCOMERS: Final = 5
_MESSAGE_CHARS: Final = 1 << 16
_NUM_MESSAGES: Final = 16
_FLOODS: Final = {"marks": "... -- ", "numbers": "1,234,"}
_LISTENED: Final = " ".join(AGENT[:4])
# Before the others begin, the listener is ahead by then.
_SETTLE_S: Final = 4.0
_VOICE: Final = "rms"


def _begin(driver: Driver, text: str, *, is_written: bool = True) -> Stream:
    return driver.start(Script(text, (text,), 0.0), _VOICE, is_written=is_written)


async def _flood(driver: Driver, kind: str) -> None:
    """To all in turn, a message each; others have their turn between two messages."""
    streams = [_begin(driver, "", is_written=False) for _ in range(_NUM_FLOODING)]
    message = (_FLOODS[kind] * _MESSAGE_CHARS)[:_MESSAGE_CHARS]
    for _ in range(_NUM_MESSAGES):
        for stream in streams:
            driver.engine.push_text(stream.utterance_id, message)
            await asyncio.sleep(0)


async def measure(kind: str, *, rounds: int) -> dict[str, Any]:
    """`kind`: nobody, sentences, or a flood."""
    gaps_ms: list[float] = []
    first_audio_ms: list[float] = []
    engine = create_engine(EngineConfig(environment.REPOSITORY / "models" / "tiny", device="cpu", threads=1))
    await engine.start()
    try:
        async with driving(engine, Speech(SpeakingMode.CLAUSE)) as driver:
            for _ in range(rounds):
                listener = _begin(driver, _LISTENED)
                await asyncio.sleep(_SETTLE_S)
                if kind == "sentences":
                    for sentence in AGENT[4 : 4 + _NUM_FLOODING]:
                        _begin(driver, sentence, is_written=True)
                elif kind != "nobody":
                    await _flood(driver, kind)
                for _ in range(_NUM_NEWCOMERS):
                    newcomer = _begin(driver, SHORT)
                    await newcomer.ended
                    first_audio_ms.append(newcomer.judged(time.monotonic()).first_audio_ms)
                await listener.ended
                gaps_ms.append(listener.judged(time.monotonic()).worst_buffered_underrun_ms or 0.0)
                await driver.cancel_all()
    finally:
        await engine.close()
    return {"worst_gap_ms": round(max(gaps_ms), 1), "newcomer_first_audio_ms": summary(first_audio_ms)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of a listener and its newcomers (default: 3)")
    parser.add_argument("--kinds", nargs="+", default=["nobody", "marks", "sentences", "numbers"])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    configure_logs("error", "console")
    report: dict[str, Any] = {"environment": environment.describe(), "beside": {}}
    for kind in options.kinds:
        report["beside"][kind] = asyncio.run(measure(kind, rounds=options.rounds))
        print(kind, json.dumps(report["beside"][kind]), flush=True)
        results_file.save(report, options.json)


if __name__ == "__main__":
    main()
