"""A span for each utterance, by OpenTelemetry (the extra `otel`): from its first text to its end.

It is made whole when the utterance has ended, of what its context holds: nothing is kept meanwhile. It holds no text of
users.
"""

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from voicegate import __version__
from voicegate.gateway.session.context import Context
from voicegate.gateway.session.observer import CANCELLED, DISCONNECTED, DONE, Observer

_WELL: Final = (DONE, CANCELLED, DISCONNECTED)
# For the last spans to leave in. Where no one takes them the exporter tries for ten seconds; an exit has no such time.
_FLUSH_S: Final = 2.0


class Tracing:
    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("voicegate", __version__)

    @classmethod
    def by_otlp(cls) -> "Tracing":
        """To where OTEL_EXPORTER_OTLP_ENDPOINT says, as what OTEL_SERVICE_NAME says, in a thread of the SDK's."""
        provider = TracerProvider(shutdown_on_exit=False)  # `close` does it
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider)

    def observer(self, trace_parent: str | None) -> Observer:
        """An observer of a client that names this as where it comes from (the header `traceparent`)."""
        carrier = {} if trace_parent is None else {"traceparent": trace_parent}
        return _Spans(self, carrier)

    def close(self) -> None:
        """Waits for the last spans, but not for long."""
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-end", daemon=True)
        closing.start()
        closing.join(_FLUSH_S)

    def record(self, context: Context, outcome: str, carrier: dict[str, str]) -> None:
        if context.first_text_s is None or context.asked_s is None:
            return  # it had nothing to say
        now_s, now_ns = asyncio.get_running_loop().time(), time.time_ns()

        def at_ns(moment_s: float) -> int:
            return now_ns - round((now_s - moment_s) * 1e9)

        request = context.request
        span = self._tracer.start_span(
            "utterance",
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.SERVER,
            start_time=at_ns(context.first_text_s),
            attributes={
                "voicegate.utterance": request.utterance_id,  # begins with the session's id, as in the log
                "voicegate.context": context.context_id,
                "voicegate.voice": request.voice,
                "voicegate.mode": request.mode.value,
                "voicegate.codec": request.audio.codec.value,
                "voicegate.outcome": outcome,
                "voicegate.characters": context.num_characters,
                "voicegate.audio_ms": context.listener.sent_ms,
            },
        )
        if context.has_utterance:
            span.add_event("taken up", timestamp=at_ns(context.asked_s + context.waited_ms / 1000))
        if context.first_audio_s is not None:
            span.add_event("first audio", timestamp=at_ns(context.first_audio_s))
        if outcome not in _WELL:
            span.set_status(Status(StatusCode.ERROR, outcome))
        span.end(now_ns)


@dataclass(frozen=True, slots=True)
class _Spans(Observer):
    tracing: Tracing
    carrier: dict[str, str]

    def ended(self, context: Context, outcome: str) -> None:
        self.tracing.record(context, outcome, self.carrier)
