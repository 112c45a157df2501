"""FakeEngine: the engine seam without a model. Tones as real packets, scripted latencies and faults.

Each utterance hums its own pitch (by submit order), so that a listener can tell audio of two contexts apart.
Part of the product: the gateway's tests, `bench/` and client authors run against it. It must not know torch.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from voicegate.engine.audio.packets import create_packet_encoder, pre_skip_48k
from voicegate.engine.checks import check_instruct, check_language, check_new_voice, check_removable, speaks_with
from voicegate.engine.core.listener import Listener
from voicegate.engine.fake.speech import VOICES, FakeSpeech, tone_hz
from voicegate.engine.interface import (
    AtRest,
    AudioFormat,
    AudioReady,
    Cancelled,
    Done,
    EndEvent,
    EngineError,
    EngineEvent,
    EngineInfo,
    EngineStats,
    EngineStopped,
    Failed,
    ListenerReport,
    NewVoice,
    Overloaded,
    SpeakingMode,
    Timing,
    UnknownVoice,
    UtteranceId,
    UtteranceRequest,
    VoiceInfo,
    VoiceRefused,
)

__all__ = ["VOICES", "FakeEngine", "Fault", "FaultKind", "Script", "tone_hz"]


_NOT_RUNNING = "the engine is not running"

# First bytes of WAV, FLAC, Ogg and tagged MP3 files.
_SOUND_FILES = (b"RIFF", b"fLaC", b"OggS", b"ID3")


class FaultKind(Enum):
    FAIL = "fail"  # the utterance fails, the engine goes on
    STALL = "stall"  # no more audio comes, until a cancel
    HANG = "hang"  # the engine gets nothing done any more, until `go_on`
    DIE = "die"  # the engine stops without another word


@dataclass(frozen=True, slots=True)
class Fault:
    kind: FaultKind
    after_ms: int = 0  # of this utterance's audio


@dataclass(frozen=True, slots=True)
class Script:
    """Events, by submit order counted from 0. By default nothing goes wrong and nothing waits."""

    ms_per_character: int = 60  # of speech; only letters and digits sound
    chunk_ms: int = 120  # audio made at a time
    first_chunk_delay_s: float = 0.0
    real_time_factor: float = 0.0  # synthesis time / audio time; 0: no waiting at all, and no lead either
    max_utterances: int = 256
    max_lead_ms: int = 5_000
    max_text_chars: int = 1 << 20
    max_instruct_chars: int = 200
    is_reproducible: bool = True
    refusals: Mapping[int, EngineError] = field(default_factory=dict)
    faults: Mapping[int, Fault] = field(default_factory=dict)


@dataclass(slots=True)
class _Utterance:
    speech: FakeSpeech
    fault: Fault | None
    due_s: float = 0.0
    listener: Listener = field(default_factory=Listener)
    is_placed: bool = True
    started_s: float | None = None  # when there was text to speak
    first_packet_s: float | None = None

    @property
    def ripe_fault(self) -> Fault | None:
        return self.fault if self.fault is not None and self.speech.audio_ms >= self.fault.after_ms else None

    @property
    def is_waiting(self) -> bool:
        """Whether time alone brings this utterance further."""
        return self.speech.has_work and (self.ripe_fault is None or self.ripe_fault.kind is not FaultKind.STALL)


class FakeEngine:
    """`requests`, `cancels`, `reports`, `num_live`, `num_placed` are there to be looked at; `until` waits for them.

    `trouble` is there to be set and unset, `go_on` ends a hang.
    """

    def __init__(self, script: Script | None = None, *, trouble: str | None = None) -> None:
        """`trouble`: while it is set, the engine runs and refuses everybody with it."""
        self._script = script or Script()
        self.trouble = trouble
        self._live: dict[UtteranceId, _Utterance] = {}
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()  # None: the end
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._num_submits = 0
        self._is_hanging = False
        self._is_dead = False
        self._voices = list(VOICES)
        self._clones: list[str] = []
        self.requests: list[UtteranceRequest] = []
        self.cancels: list[tuple[UtteranceId, int | None]] = []
        self.reports: list[tuple[UtteranceId, ListenerReport]] = []

    @property
    def num_live(self) -> int:
        return len(self._live)

    @property
    def num_placed(self) -> int:
        """Without those at rest."""
        return sum(utterance.is_placed for utterance in self._live.values())

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once `is_so` holds; looked at again after every call and every step."""
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    def go_on(self) -> None:
        self._is_hanging = False
        self._wake.set()

    # --- the seam -----------------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        self._require_running()
        return EngineInfo(
            model="fake",
            voices=tuple(self._voices),
            clones=tuple(self._clones),
            default_voice=VOICES[0].name,
            modes=(SpeakingMode.AUTO, SpeakingMode.CLAUSE, SpeakingMode.BISTREAM),
            pre_skip_48k=pre_skip_48k(AudioFormat()),
            max_utterances=self._script.max_utterances,
            max_lead_ms=self._script.max_lead_ms,
            max_text_chars=self._script.max_text_chars,
            max_instruct_chars=self._script.max_instruct_chars,
            is_reproducible=self._script.is_reproducible,
            family="fake",
            languages=("en", "zh"),
        )

    @property
    def unready_reason(self) -> str | None:
        return self.trouble if self._is_running else _NOT_RUNNING

    @property
    def room(self) -> int:
        return max(self._script.max_utterances - self.num_placed, 0) if self.unready_reason is None else 0

    @property
    def pulse(self) -> int | None:
        return 0 if self._is_hanging else None  # all work takes no time

    def stats(self) -> EngineStats:
        return EngineStats()

    async def start(self) -> None:
        if self._loop_task is None:
            self._loop_task = asyncio.create_task(self._run(), name="fake-engine")

    async def close(self) -> None:
        task, self._loop_task = self._loop_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        for utterance_id in list(self._live):
            self._emit_end(Failed(utterance_id, "the engine was closed"))
        self._events.put_nowait(None)

    def submit(self, request: UtteranceRequest) -> None:
        self._require_running()
        number, self._num_submits = self._num_submits, self._num_submits + 1
        if number in self._script.refusals:
            raise self._script.refusals[number]
        info = self.info
        if not speaks_with(request.voice, info):
            names = ", ".join(voice.name for voice in info.voices)
            raise UnknownVoice(f"no voice {request.voice!r}; there are {names}")
        check_instruct(request.instruct, info)
        check_language(request.language, info)
        self._check_places()
        speech = FakeSpeech(request, number, create_packet_encoder(request.audio))
        self._live[request.utterance_id] = _Utterance(speech, self._script.faults.get(number))
        self.requests.append(request)
        self._changed.set()

    def readmit(self, utterance_id: UtteranceId) -> None:
        if (utterance := self._live.get(utterance_id)) is not None and not utterance.is_placed:
            self._check_places()
            utterance.is_placed = True

    def _check_places(self) -> None:
        if self.trouble is not None:
            raise Overloaded(self.trouble, retry_after_ms=500)
        if self.num_placed >= self._script.max_utterances:
            raise Overloaded(f"{self.num_placed} utterances run already", retry_after_ms=500)

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        if (utterance := self._live.get(utterance_id)) is not None and not utterance.speech.is_ended:
            utterance.speech.push(text)
            utterance.is_placed = utterance.is_placed or bool(text)
            if len(utterance.speech.text) > self._script.max_text_chars:
                self._emit_end(Failed(utterance_id, f"an utterance takes {self._script.max_text_chars} characters"))
            self._schedule(utterance)

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        if (utterance := self._live.get(utterance_id)) is not None and not utterance.speech.is_ended:
            utterance.speech.flush(flush_id)
            self._schedule(utterance)

    def end_text(self, utterance_id: UtteranceId) -> None:
        if (utterance := self._live.get(utterance_id)) is not None:
            utterance.speech.end()
            self._schedule(utterance)

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        self.reports.append((utterance_id, report))
        if (utterance := self._live.get(utterance_id)) is not None:
            utterance.listener.note(report, made_s=utterance.speech.audio_ms / 1000, now_s=_now_s())
            self._schedule(utterance)
        self._changed.set()

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None = None) -> None:
        self.cancels.append((utterance_id, played_ms))
        if (utterance := self._live.get(utterance_id)) is not None:
            speech = utterance.speech
            spoken, remaining = speech.split(played_ms)
            self._emit_end(Cancelled(utterance_id, speech.audio_ms, speech.end_pts_48k, spoken, remaining))
        self._changed.set()

    async def add_voice(self, voice: NewVoice) -> VoiceInfo:
        check_new_voice(voice, self.info)
        if not voice.recording.startswith(_SOUND_FILES):
            raise VoiceRefused("the recording is no sound file that can be read")
        added = VoiceInfo(voice.name, voice.description)
        self._drop_voice(voice.name)
        if voice.is_clone:
            self._clones.append(voice.name)
        else:
            self._voices.append(added)
        return added

    async def remove_voice(self, name: str) -> None:
        check_removable(name, self.info)
        self._drop_voice(name)

    def _drop_voice(self, name: str) -> None:
        self._voices = [voice for voice in self._voices if voice.name != name]
        self._clones = [clone for clone in self._clones if clone != name]

    async def next_event(self) -> EngineEvent:
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)
            raise EngineStopped(_NOT_RUNNING)
        return event

    # --- the loop -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._step_until_dead()
        except Exception:
            self._is_dead = True
            self._events.put_nowait(None)
            raise

    async def _step_until_dead(self) -> None:
        while not self._is_dead:
            self._wake.clear()
            wait_s = self._step()
            self._changed.set()
            if wait_s == 0.0:
                await asyncio.sleep(0)  # lets the sockets have their turn; nothing is waited for
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _step(self) -> float | None:
        """A chunk of every utterance that is due. Returns seconds until the next is; None: until something comes."""
        if self._is_hanging:
            return None
        now_s = _now_s()
        for utterance in list(self._live.values()):
            if utterance.speech.has_work and self._due_s(utterance) <= now_s:
                if utterance.ripe_fault is None:
                    self._advance(utterance)
                else:
                    self._suffer(utterance, utterance.ripe_fault)
        next_s = min((self._due_s(each) for each in self._live.values() if each.is_waiting), default=math.inf)
        return None if next_s == math.inf else max(0.0, next_s - now_s)

    def _advance(self, utterance: _Utterance) -> None:
        speech = utterance.speech
        if not speech.is_finished:
            before_ms = speech.audio_ms
            events = speech.speak(chunk_ms=self._script.chunk_ms, ms_per_character=self._script.ms_per_character)
            self._emit(utterance, events)
            self._pace(utterance, made_ms=speech.audio_ms - before_ms)
            if utterance.is_placed and speech.is_at_rest:
                utterance.is_placed = False
                self._events.put_nowait(AtRest(speech.request.utterance_id, len(speech.text)))
            return
        self._emit(utterance, speech.finish())
        timing = Timing()
        if utterance.started_s is not None and utterance.first_packet_s is not None:
            first_packet_ms = (utterance.first_packet_s - utterance.started_s) * 1000
            timing = Timing(queue_ms=0.0, first_chunk_ms=first_packet_ms, first_packet_ms=first_packet_ms)
        self._emit_end(
            Done(speech.request.utterance_id, speech.audio_ms, speech.num_packets, speech.end_pts_48k, timing)
        )

    def _suffer(self, utterance: _Utterance, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.FAIL:
                self._emit_end(Failed(utterance.speech.request.utterance_id, "scripted failure"))
            case FaultKind.STALL:
                pass
            case FaultKind.HANG:
                self._is_hanging = True
                utterance.fault = None
            case FaultKind.DIE:
                self._is_dead = True
                self._events.put_nowait(None)

    # --- small steps --------------------------------------------------------------------------------------

    @property
    def _is_running(self) -> bool:
        return self._loop_task is not None and not self._is_dead

    def _require_running(self) -> None:
        if not self._is_running:
            raise EngineStopped(_NOT_RUNNING)

    def _schedule(self, utterance: _Utterance) -> None:
        if utterance.started_s is None and utterance.speech.has_work:
            utterance.started_s = _now_s()
            utterance.due_s = utterance.started_s + self._script.first_chunk_delay_s
        self._wake.set()
        self._changed.set()

    def _pace(self, utterance: _Utterance, *, made_ms: int) -> None:
        if utterance.first_packet_s is not None:
            utterance.due_s = _now_s() + made_ms / 1000 * self._script.real_time_factor

    def _due_s(self, utterance: _Utterance) -> float:
        """The lead counts where time does, and for a listener who does not play; not where none waits."""
        if utterance.speech.request.is_background:
            return utterance.due_s
        lead_s = (utterance.speech.request.lead_ms or self._script.max_lead_ms) / 1000
        listener = utterance.listener
        if listener.held_s is not None:
            return utterance.due_s if listener.held_s < lead_s else math.inf
        if listener.deadline_s is None or not self._script.real_time_factor:
            return utterance.due_s
        return max(utterance.due_s, listener.deadline_s - lead_s)

    def _emit(self, utterance: _Utterance, events: list[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, AudioReady):
                now_s, frame_ms = _now_s(), utterance.speech.request.audio.frame_ms
                utterance.listener.send(len(event.packets) * frame_ms / 1000, now_s)
                if utterance.first_packet_s is None:
                    utterance.first_packet_s = now_s
            self._events.put_nowait(event)

    def _emit_end(self, event: EndEvent) -> None:
        del self._live[event.utterance_id]
        self._events.put_nowait(event)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
