"""GPUs by memory and by arithmetic: how many streams each speaks at once, and what speech costs. No torch, no I/O.

Two cards are measured; of the others all that is told is computed from these two.
"""

from dataclasses import dataclass
from typing import Final

from voicegate.engine.config import Gpu

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed at the released model's sizes."""

    single_first_audio_ms: float
    latency_streams: int  # at once, with first audio in under 100 ms for 95 %, and no gap
    most_streams: int  # at once, no one lost and no gap
    audio_s_per_s: float  # of all, where as many as find room are spoken at once and no one is in a hurry


@dataclass(frozen=True, slots=True)
class Card:
    """`memory_gib` as torch tells it; arithmetic and bandwidth as its maker does (dense bfloat16)."""

    name: str
    memory_gib: float
    num_multiprocessors: int
    has_float8: bool
    tflops: float
    gb_per_s: float

    @property
    def gpu(self) -> Gpu:
        return Gpu(round(self.memory_gib * _GIB), self.num_multiprocessors, self.has_float8)


H200: Final = Card("H200", 139.8, 132, True, 989, 4800)
H100: Final = Card("H100", 79.2, 132, True, 989, 3350)
CARDS: Final = {
    card.name: card
    for card in (
        Card("L4", 22.2, 58, True, 121, 300),
        Card("A10G", 22.0, 80, False, 70, 600),
        Card("RTX4090", 23.6, 128, True, 165, 1008),
        Card("L40S", 44.4, 142, True, 362, 864),
        Card("A100", 79.2, 108, False, 312, 2039),
        H100,
        H200,
    )
}

# H200: bench/results/engine-h200-3d38cbd.json (first-audio, sustain-300, sustain-400, burst-400). H100: by hand with
# the same bench, the defaults and code as old, without a file; 200 were sustained with 86 ms (p95), more not tried.
MEASURED: Final = {
    H200.name: Speed(19.7, 300, 400, 585.8),
    H100.name: Speed(21.0, 200, 200, 542.0),
}

# By sizes alone: LLM, flow and vocoder together.
MEASURED_WEIGHTS: Final = 859_000_000


def speed_of(card: Card) -> Speed:
    """Measured, or computed: see `is_measured`."""
    return MEASURED.get(card.name) or _computed(card)


def is_measured(card: Card) -> bool:
    return card.name in MEASURED


def _computed(card: Card) -> Speed:
    """A second of audio takes so long for its arithmetic and so long for its memory, in proportion to the card's rates.

    The two measured cards have equal arithmetic and other bandwidths, which parts their times. Of what a card computes
    at once it may speak that share live which the H100 does in 100 ms, the lower of the two, and the H200 at the most.
    """
    h200, h100 = MEASURED[H200.name], MEASURED[H100.name]
    memory_s = (1 / h100.audio_s_per_s - 1 / h200.audio_s_per_s) / (H200.gb_per_s / H100.gb_per_s - 1)
    arithmetic_s = 1 / h200.audio_s_per_s - memory_s
    slower = arithmetic_s * H200.tflops / card.tflops + memory_s * H200.gb_per_s / card.gb_per_s
    audio_s_per_s = 1 / slower
    return Speed(
        single_first_audio_ms=h200.single_first_audio_ms * slower * h200.audio_s_per_s,
        latency_streams=int(audio_s_per_s * h100.latency_streams / h100.audio_s_per_s),
        most_streams=int(audio_s_per_s * h200.most_streams / h200.audio_s_per_s),
        audio_s_per_s=audio_s_per_s,
    )


# Seconds of context for a stream whose clauses take about four. On an H200 with 1384 s no request waited for memory
# at 300 streams, and one in twenty at 400 (docs/adr/0008). Lower -> more streams are promised, of which
# some wait; longer clauses want more.
SECONDS_PER_STREAM: Final = 4.5


def streams_by_memory(context_s: float, *, num_slots: int) -> int:
    """`context_s`: that there is room for, beside the voices."""
    return max(min(int(context_s / SECONDS_PER_STREAM), num_slots), 0)


@dataclass(frozen=True, slots=True)
class Cost:
    per_speech_hour: float
    per_million_characters: float


def cost(price_per_hour: float, speech_s_per_s: float, *, characters_per_s: float) -> Cost:
    """In the price's money; `speech_s_per_s` on average, idle hours included."""
    per_hour = price_per_hour / speech_s_per_s
    return Cost(per_hour, per_hour * 1_000_000 / characters_per_s / 3600)
