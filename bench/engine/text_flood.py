"""What others' text costs: a listener and newcomers beside eight contexts that send 1 MiB each as fast as they can.

    python -m voicegate.bench.engine.text_flood [--json FILE]

`marks` has nothing to say: all that it costs is reading. Of `numbers` every sign is said, so those contexts speak, too;
beside `sentences` eight speak as much and have sent no more: the difference between these two is the text's. Numbers
come to no end, and nine share one thread: a round that has not ended after `--round-s` is cut off, and counts with what
was heard by then. The tiny model on one thread, at the engine's seam. Needs a machine with nothing else to do.
"""

import argparse
import asyncio
import time
from dataclasses import dataclass, field
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


@dataclass
class Heard:
    gaps_ms: list[float] = field(default_factory=list)
    first_audio_ms: list[float] = field(default_factory=list)
    num_unheard: int = 0  # newcomers who had heard nothing when their round was cut off
    num_cut_off: int = 0  # rounds

    async def round(self, driver: Driver, kind: str, round_s: float) -> None:
        listener = _begin(driver, _LISTENED)
        newcomers: list[Stream] = []
        try:
            async with asyncio.timeout(round_s):
                await asyncio.sleep(_SETTLE_S)
                if kind == "sentences":
                    for sentence in AGENT[4 : 4 + _NUM_FLOODING]:
                        _begin(driver, sentence)
                elif kind != "nobody":
                    await _flood(driver, kind)
                for _ in range(_NUM_NEWCOMERS):
                    newcomers.append(_begin(driver, SHORT))
                    await asyncio.shield(newcomers[-1].ended)
                await asyncio.shield(listener.ended)
        except TimeoutError:
            self.num_cut_off += 1
        self._judge(listener, newcomers)
        await driver.cancel_all()

    def _judge(self, listener: Stream, newcomers: list[Stream]) -> None:
        now_s = time.monotonic()
        self.gaps_ms.append(listener.judged(now_s).worst_buffered_underrun_ms or 0.0)
        heard = [newcomer for newcomer in newcomers if newcomer.arrivals]
        self.num_unheard += len(newcomers) - len(heard)
        self.first_audio_ms += [newcomer.judged(now_s).first_audio_ms for newcomer in heard]


async def measure(kind: str, *, rounds: int, round_s: float) -> dict[str, Any]:
    """`kind`: nobody, sentences, or a flood."""
    heard = Heard()
    engine = create_engine(EngineConfig(environment.REPOSITORY / "models" / "tiny", device="cpu", threads=1))
    await engine.start()
    try:
        async with driving(engine, Speech(SpeakingMode.CLAUSE)) as driver:
            for _ in range(rounds):
                await heard.round(driver, kind, round_s)
    finally:
        await engine.close()
    return {
        "worst_gap_ms": round(max(heard.gaps_ms), 1),
        "newcomer_first_audio_ms": summary(heard.first_audio_ms),
        "newcomers_unheard": heard.num_unheard,
        "rounds_cut_off": heard.num_cut_off,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of a listener and its newcomers (default: 3)")
    parser.add_argument("--round-s", type=float, default=60.0, help="after which a round is cut off (default: 60)")
    parser.add_argument("--kinds", nargs="+", default=["nobody", "marks", "sentences", "numbers"])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    configure_logs("error", "console")

    def beside(kind: str) -> dict[str, Any]:
        return asyncio.run(measure(kind, rounds=options.rounds, round_s=options.round_s))

    results_file.gather(beside, options.kinds, options.json)


if __name__ == "__main__":
    main()
