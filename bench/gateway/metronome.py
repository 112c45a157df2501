"""An engine that costs next to nothing: each utterance gets packets in time, made before, with the time in the first.

Stands in for FakeEngine, whose tones and encoder would be most of what is measured. Its events come out of a thread
of its own and by the real engine's way.
"""

import asyncio
import heapq
import random
import struct
import threading
import time
from dataclasses import dataclass
from typing import Final

from voicegate.engine.interface import (
    AlignedText,
    Alignment,
    AudioReady,
    Cancelled,
    Done,
    EngineEvent,
    EngineInfo,
    EngineStats,
    EngineStopped,
    Failed,
    ListenerReport,
    NewVoice,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
    VoiceInfo,
    VoiceRefused,
)
from voicegate.engine.thread.outbox import Outbox

STAMP: Final = struct.Struct("<q")  # time.monotonic_ns, which all processes of a machine share
_PACKET_MS: Final = 20
_PACKET_BYTES: Final = 80  # of Opus at 32 kbit/s
_WORD_MS: Final = 400
_FILLER: Final = bytes(_PACKET_BYTES - STAMP.size)
_REST: Final = bytes(_PACKET_BYTES)
_TICK_S: Final = 0.001


@dataclass(slots=True)
class _Voice:
    """One utterance that speaks until it is ended."""

    utterance_id: UtteranceId
    num_packets: int = 0
    num_words: int = 0


class Metronome:
    def __init__(self, *, chunk_ms: int, max_utterances: int, is_prompt: bool = False) -> None:
        """`is_prompt`: an utterance's first chunk comes at once, not at a moment of its own."""
        self._is_prompt = is_prompt
        self._packets_per_chunk = chunk_ms // _PACKET_MS
        self._rest = (_REST,) * (self._packets_per_chunk - 1)
        self._chunk_s = chunk_ms / 1000
        self._max_utterances = max_utterances
        self._lock = threading.Lock()  # over the two that follow
        self._live: dict[UtteranceId, _Voice] = {}
        self._due: list[tuple[float, UtteranceId]] = []  # a heap
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._outbox: Outbox | None = None
        self._thread = threading.Thread(target=self._run, name="metronome", daemon=True)
        self._is_closed = False
        self._random = random.Random(0)
        self.cpu_s = 0.0  # of its thread
        self.info = EngineInfo(
            model="metronome",
            voices=(VoiceInfo("tick", "Packets of no sound"),),
            default_voice="tick",
            modes=(SpeakingMode.AUTO, SpeakingMode.CLAUSE),
            pre_skip_48k=312,
            max_utterances=max_utterances,
            max_lead_ms=5_000,
        )

    @property
    def unready_reason(self) -> str | None:
        return None

    @property
    def room(self) -> int:
        return self._max_utterances - len(self._live)

    @property
    def pulse(self) -> int | None:
        return None

    def stats(self) -> EngineStats:
        return EngineStats()

    async def start(self) -> None:
        self._outbox = Outbox(asyncio.get_running_loop(), self._publish)
        self._thread.start()

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.to_thread(self._thread.join)
        self._publish([*(Failed(utterance_id, "closed") for utterance_id in self._live)])
        self._events.put_nowait(None)

    def submit(self, request: UtteranceRequest) -> None:
        with self._lock:
            self._live[request.utterance_id] = _Voice(request.utterance_id)
            wait_s = 0.0 if self._is_prompt else self._random.random() * self._chunk_s  # so that not all speak at once
            begins_s = time.monotonic() + wait_s
            heapq.heappush(self._due, (begins_s, request.utterance_id))

    def readmit(self, utterance_id: UtteranceId) -> None:
        pass

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        pass

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        raise NotImplementedError("nobody flushes here")

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        pass

    def end_text(self, utterance_id: UtteranceId) -> None:
        if (voice := self._stop(utterance_id)) is not None:
            audio_ms = voice.num_packets * _PACKET_MS
            self._publish([Done(utterance_id, audio_ms, voice.num_packets, audio_ms * 48)])

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None = None) -> None:
        if (voice := self._stop(utterance_id)) is not None:
            audio_ms = voice.num_packets * _PACKET_MS
            self._publish([Cancelled(utterance_id, audio_ms, audio_ms * 48, "", "")])

    async def add_voice(self, voice: NewVoice) -> VoiceInfo:
        raise VoiceRefused("a metronome has one voice")

    async def remove_voice(self, name: str) -> None:
        raise VoiceRefused("a metronome has one voice")

    async def next_event(self) -> EngineEvent:
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)
            raise EngineStopped("closed")
        return event

    def _stop(self, utterance_id: UtteranceId) -> _Voice | None:
        with self._lock:
            return self._live.pop(utterance_id, None)

    def _publish(self, events: list[EngineEvent]) -> None:
        for event in events:
            self._events.put_nowait(event)

    # --- in its thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._outbox is not None
        while not self._is_closed:
            now_s = time.monotonic()
            while self._due and self._due[0][0] <= now_s:
                with self._lock:
                    due_s, utterance_id = heapq.heappop(self._due)
                    voice = self._live.get(utterance_id)
                    if voice is None:
                        continue
                    heapq.heappush(self._due, (due_s + self._chunk_s, utterance_id))
                self._outbox.put(self._chunk(voice))
            self.cpu_s = time.thread_time()
            time.sleep(_TICK_S)

    def _chunk(self, voice: _Voice) -> list[EngineEvent]:
        """The next packets, and the words that begin in them."""
        before = voice.num_packets
        voice.num_packets += self._packets_per_chunk
        words: list[AlignedText] = []
        while voice.num_words * _WORD_MS < voice.num_packets * _PACKET_MS:
            start_ms, place = voice.num_words * _WORD_MS, voice.num_words * 6
            words.append(AlignedText("word,", start_ms, start_ms + _WORD_MS, place, place + 5))
            voice.num_words += 1
        packets = (STAMP.pack(time.monotonic_ns()) + _FILLER, *self._rest)
        audio = AudioReady(voice.utterance_id, packets, before * _PACKET_MS * 48)
        return [Alignment(voice.utterance_id, tuple(words), estimated=True), audio] if words else [audio]
