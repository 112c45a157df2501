"""Counts events as they happen: a context at a time, never a packet. Every metric of that kind, with its help.

Labels have few values, known beforehand: no voices, keys or addresses, which clients or time would multiply, and of
tags those that the operator has listed (ADR 0023). Of these the log tells.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from voicegate.engine.interface import Timing
from voicegate.gateway.session.context import Context
from voicegate.gateway.session.observer import OUTCOMES, Observer
from voicegate.gateway.session.retention import Return
from voicegate.protocol.errors import ErrorCode

# Clients without a listed tag.
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class _Tagged(Observer):
    contexts: Counter
    characters: Counter
    audio: Counter

    def ended(self, context: Context, outcome: str) -> None:
        self.contexts.inc()
        self.characters.inc(context.num_characters)
        self.audio.inc(context.listener.sent_ms / 1000)


class Tags:
    def __init__(self, registry: CollectorRegistry, tags: Iterable[str]) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"voicegate_client_{name}", f"{text}, by client's tag", ("tag",), registry=registry)

        contexts = counter("contexts_ended", "Contexts that have ended")
        characters = counter("text_characters", "Characters of their text")
        audio = counter("audio_seconds", "Audio handed to sockets for them")
        self._by_tag = {
            tag: _Tagged(contexts.labels(tag), characters.labels(tag), audio.labels(tag)) for tag in (*tags, OTHER)
        }

    def observer(self, tag: str | None) -> Observer:
        return self._by_tag.get(tag or OTHER, self._by_tag[OTHER])


# Dense where listeners begin to notice: 20 ms is a single stream's on a GPU, 300 ms what the bench takes for good.
# Fewer make a percentile coarser; each is a series more.
_FIRST_AUDIO_S: Final = (
    *(0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1),
    *(0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
)
_WAIT_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# Negative: the gap that a listener without a buffer of their own heard.
_LEAD_S: Final = (-5.0, -1.0, -0.5, -0.2, -0.1, -0.05, 0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0)
_LAG_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Meters(Observer):
    """An observer of contexts; the server tells it the rest. From the event loop."""

    def __init__(self, registry: CollectorRegistry, tags: Iterable[str] = ()) -> None:
        """`tags`: of clients that are told apart."""
        self._tags = Tags(registry, tags)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"voicegate_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"voicegate_{name}", text, labels, buckets=buckets, registry=registry)

        self._ends = counter("contexts_ended", "Contexts by how they ended; a cancel is an interruption", "outcome")
        self._errors = counter("errors", "Error messages to clients by code: refusals and failures", "code")
        self._sockets = counter("sockets_opened", "WebSockets let in")
        self._refused = counter("upgrades_refused", "WebSocket handshakes refused, by HTTP status", "status")
        self._responses = counter("http_responses", "Answers to HTTP requests by status", "status")
        self._characters = counter("text_characters", "Characters of text in contexts that have ended")
        self._audio = counter("audio_seconds", "Audio handed to sockets for contexts that have ended")
        self._underruns = counter("listener_underruns", "Gaps that listeners had, as their players report (playback)")
        self._ttfb = histogram("ttfb_seconds", "First text of a context to its first audio", _FIRST_AUDIO_S)
        self._synthesis = histogram(
            "synthesis_ttfb_seconds", "Taken up by the engine to first audio: ttfb without waiting", _FIRST_AUDIO_S
        )
        self._wait = histogram("admission_wait_seconds", "Something to say to taken up by the engine", _WAIT_S)
        self._stages = histogram(
            "engine_stage_seconds",
            "First speakable text in the engine to the first result of a stage; of contexts that were done",
            _FIRST_AUDIO_S,
            "stage",
        )
        self._lead = histogram(
            "lowest_lead_seconds", "Least audio in hand of a listener who plays without a buffer, by context", _LEAD_S
        )
        self._lag = histogram("event_loop_lag_seconds", "How late the event loop comes to a timer", _LAG_S)
        self._returns = counter("session_returns", "Clients that came back for their session, or did not", "outcome")
        self._kept = Gauge("voicegate_resume_kept_bytes", "Kept for clients that may come back", registry=registry)
        self._expiry = Gauge(
            "voicegate_certificate_expiry_timestamp_seconds",
            "When the certificate in use expires; 0 without TLS",
            registry=registry,
        )
        self._is_read = Gauge(
            "voicegate_last_reload_successful",
            "1: keys, pronunciations or the certificate could be read when last asked for",
            ("file",),
            registry=registry,
        )
        self._read_at = Gauge(
            "voicegate_last_reload_success_timestamp_seconds",
            "When keys, pronunciations or the certificate could last be read",
            ("file",),
            registry=registry,
        )
        self._jobs = Gauge("voicegate_jobs", "Jobs that have not ended, by state", ("state",), registry=registry)
        self._job_audio = counter("job_audio_seconds", "Audio of finished parts of jobs")
        self.show_jobs(queued=0, running=0)
        for each in Return:
            self._returns.labels(each.value)
        for outcome in OUTCOMES:
            self._ends.labels(outcome)
        for code in ErrorCode:
            self._errors.labels(code.value)

    def observers(self, tag: str | None) -> list[Observer]:
        """Observers of a client's contexts."""
        return [self, self._tags.observer(tag)]

    # --- contexts ---------------------------------------------------------------------------------------------

    def began(self, context: Context) -> None:
        self._wait.observe(context.waited_ms / 1000)

    def sounded(self, context: Context) -> None:
        assert context.first_audio_s is not None
        if context.first_text_s is not None:
            self._ttfb.observe(context.first_audio_s - context.first_text_s)
        if context.asked_s is not None:
            self._synthesis.observe(context.first_audio_s - context.asked_s - context.waited_ms / 1000)

    def ended(self, context: Context, outcome: str) -> None:
        self._ends.labels(outcome).inc()
        self._characters.inc(context.num_characters)
        self._audio.inc(context.listener.sent_ms / 1000)
        if context.listener.lowest_lead_s is not None:
            self._lead.observe(context.listener.lowest_lead_s)
        if context.measured is not None:
            self._note_timing(context.measured)

    def underruns(self, number: int) -> None:
        self._underruns.inc(number)

    def _note_timing(self, timing: Timing) -> None:
        for stage, value_ms in (
            ("begun", timing.queue_ms),
            ("first_token", timing.llm_first_token_ms),
            ("first_samples", timing.first_chunk_ms),
            ("first_packet", timing.first_packet_ms),
        ):
            if value_ms is not None:
                self._stages.labels(stage).observe(value_ms / 1000)

    # --- the rest ---------------------------------------------------------------------------------------------

    def note_error(self, code: str) -> None:
        self._errors.labels(code).inc()

    def note_socket(self) -> None:
        self._sockets.inc()

    def note_refused_upgrade(self, status: int) -> None:
        self._refused.labels(HTTPStatus(status).value).inc()

    def note_response(self, status: int) -> None:
        self._responses.labels(HTTPStatus(status).value).inc()

    def note_lag(self, lag_s: float) -> None:
        self._lag.observe(lag_s)

    def note_return(self, outcome: Return) -> None:
        self._returns.labels(outcome.value).inc()

    def note_read(self, file: str, *, is_good: bool) -> None:
        """`file`: keys, pronunciations or certificate."""
        self._is_read.labels(file).set(is_good)
        if is_good:
            self._read_at.labels(file).set_to_current_time()

    def show_expiry(self, valid_until: datetime) -> None:
        self._expiry.set(valid_until.timestamp())

    def show_kept_bytes(self, read: Callable[[], int]) -> None:
        """`read` is asked whenever somebody looks, from another thread."""
        self._kept.set_function(read)

    def show_jobs(self, *, queued: int, running: int) -> None:
        self._jobs.labels("queued").set(queued)
        self._jobs.labels("running").set(running)

    def note_job_audio(self, audio_s: float) -> None:
        self._job_audio.inc(audio_s)
