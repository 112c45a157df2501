"""Reads an engine's events, holds every one against the promises of engine.interface, and keeps them by utterance."""

import asyncio
from collections import defaultdict
from typing import TypeVar

from voicegate.engine import units
from voicegate.engine.interface import (
    Alignment,
    AtRest,
    AudioFormat,
    AudioReady,
    Cancelled,
    Done,
    EndEvent,
    Engine,
    EngineEvent,
    Failed,
    Flushed,
    UtteranceId,
    UtteranceRequest,
)

T = TypeVar("T")


class Listener:
    def __init__(self, engine: Engine, *, timeout_s: float) -> None:
        self.engine = engine
        self.events: dict[UtteranceId, list[EngineEvent]] = defaultdict(list)
        self._formats: dict[UtteranceId, AudioFormat] = {}
        self._num_packets: dict[UtteranceId, int] = defaultdict(int)
        self._timeout_s = timeout_s

    def submit(
        self,
        name: str,
        *,
        text: str = "",
        end: bool = False,
        voice: str | None = None,
        audio: AudioFormat | None = None,
        **more: object,
    ) -> UtteranceId:
        utterance_id = UtteranceId(name)
        request = UtteranceRequest(
            utterance_id,
            voice or self.engine.info.default_voice,
            audio or AudioFormat(),
            seed=1 if self.engine.info.is_reproducible else None,
            **more,  # type: ignore[arg-type]
        )
        self.engine.submit(request)
        self._formats[utterance_id] = request.audio
        if text:
            self.engine.push_text(utterance_id, text)
        if end:
            self.engine.end_text(utterance_id)
        return utterance_id

    async def next(self) -> EngineEvent:
        async with asyncio.timeout(self._timeout_s):
            event = await self.engine.next_event()
        self._check(event)
        self.events[event.utterance_id].append(event)
        return event

    async def until(self, utterance_id: UtteranceId, kind: type[T]) -> T:
        """The next event of this kind of this utterance."""
        while True:
            event = await self.next()
            if event.utterance_id == utterance_id and isinstance(event, kind):
                return event

    async def until_heard(self, *utterance_ids: UtteranceId) -> None:
        """Each has had audio by then, whichever had it first."""
        while not all(self.packets(utterance_id) for utterance_id in utterance_ids):
            await self.next()

    async def until_end(self, utterance_id: UtteranceId) -> EndEvent:
        while (end := self.end_of(utterance_id)) is None:
            await self.next()
        return end

    async def until_quiet(self) -> None:
        """Whatever this engine still says before a fresh utterance has come and gone."""
        await self.until_end(self.submit(f"probe-{len(self.events)}", end=True))

    def end_of(self, utterance_id: UtteranceId) -> EndEvent | None:
        ends = [event for event in self.events[utterance_id] if isinstance(event, Done | Cancelled | Failed)]
        return ends[0] if ends else None

    def packets(self, utterance_id: UtteranceId) -> list[bytes]:
        audio = [event for event in self.events[utterance_id] if isinstance(event, AudioReady)]
        return [packet for event in audio for packet in event.packets]

    def _check(self, event: EngineEvent) -> None:
        utterance_id = event.utterance_id
        assert utterance_id in self._formats, f"{event} is of no utterance"
        assert self.end_of(utterance_id) is None, f"{event} follows the end"
        frame_48k = self._formats[utterance_id].frame_ms * units.OPUS_CLOCK_HZ // 1000
        match event:
            case AudioReady(packets=packets, pts_48k=pts_48k):
                assert packets
                assert pts_48k == self._num_packets[utterance_id] * frame_48k, "audio is contiguous from 0"
                self._num_packets[utterance_id] += len(packets)
            case Done(num_packets=num_packets, end_pts_48k=end_pts_48k, audio_ms=audio_ms):
                assert num_packets == self._num_packets[utterance_id]
                assert end_pts_48k <= num_packets * frame_48k
                assert (audio_ms == 0) == (num_packets == 0)
            case Cancelled(end_pts_48k=end_pts_48k):
                assert end_pts_48k >= 0
            case Alignment(items=items):
                sent_ms = self._num_packets[utterance_id] * frame_48k // 48
                for item in items:
                    assert item.start_ms >= sent_ms, "words are told before they are heard"
                    assert 0 <= item.start_ms <= item.end_ms
                    assert 0 <= item.char_start <= item.char_end
            case Flushed(audio_ms=audio_ms):
                assert audio_ms >= 0
            case AtRest(num_chars=num_chars):
                assert num_chars > 0
            case Failed(message=message):
                assert message
                assert "Traceback" not in message
