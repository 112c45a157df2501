"""A full queue of jobs beside a simulated load: parts begin and are stopped as the gateway's runner would have it."""

from collections.abc import Sequence
from functools import partial
from itertools import chain, count, repeat
from typing import Any, Final

from voicegate.bench.jobs import first_lengths
from voicegate.bench.simulated.device import Device
from voicegate.bench.simulated.models import Simulated
from voicegate.bench.simulated.run import Run
from voicegate.clients.bench.sentences import ENGLISH
from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Codec,
    Done,
    EngineEvent,
    Failed,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.gateway.server.jobs.places import places_of

_LOOK_S: Final = 0.1
_LEAD_MS: Final = 60_000
_TEXT: Final = "\n\n".join(ENGLISH.paragraphs[:2])  # a part


class RunWithJobs(Run):
    def __init__(self, config: EngineConfig, device: Device, simulated: Simulated, *, host_slowdown: float) -> None:
        super().__init__(config, device, simulated, host_slowdown=host_slowdown)
        self._most_utterances = config.max_utterances
        self._parts: list[UtteranceId] = []  # that run; the oldest first
        self._made: list[tuple[float, int]] = []  # when, and samples
        self._part_numbers = count()
        self._lengths = chain(first_lengths(len(_TEXT)), repeat(len(_TEXT)))
        self._at(0.0, partial(self._look, 0.0))

    def job_figures(self, window_s: tuple[float, float]) -> dict[str, Any]:
        begin_s, end_s = window_s
        num_samples = sum(num for at_s, num in self._made if begin_s <= at_s <= end_s)
        audio_s_per_s = num_samples / units.SAMPLE_RATE_HZ / (end_s - begin_s)
        return {"audio_s_per_s": round(audio_s_per_s, 1), "parts": len(self._parts)}

    def _look(self, now_s: float) -> None:
        places = places_of(self.core.num_welcome, self._most_utterances, self.core.gauges)
        num_short = places.num_short if self.core.num_placed > len(self._parts) else 0
        for part in self._parts[max(len(self._parts) - num_short, 0) :]:
            self.core.cancel(part, None)
            self._parts.remove(part)
        for _ in range(0 if num_short else places.num_more(len(self._parts))):
            self._begin()
        self._at(now_s + _LOOK_S, partial(self._look, now_s + _LOOK_S))

    def _begin(self) -> None:
        number = next(self._part_numbers)
        part, voice = UtteranceId(f"job-{number}"), next(iter(self.simulated.stages.voices))
        audio, mode = AudioFormat(Codec.PCM_S16LE), SpeakingMode.CLAUSE
        self._parts.append(part)
        self.core.submit(UtteranceRequest(part, voice, audio, mode, lead_ms=_LEAD_MS, is_background=True), seed=number)
        self.core.push_text(part, _TEXT[: next(self._lengths)])
        self.core.end_text(part)

    def _take(self, events: Sequence[EngineEvent]) -> None:
        super()._take(events)
        for event in events:
            if event.utterance_id not in self._parts:
                continue
            if isinstance(event, AudioReady):
                self._made.append((self.device.now_s, sum(map(len, event.packets)) // 2))
            elif isinstance(event, Done | Failed):
                self._parts.remove(event.utterance_id)
