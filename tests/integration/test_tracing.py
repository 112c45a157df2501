"""Spans of utterances, over real sockets, by the real SDK: when each began and sounded, how it ended, whose it was."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.integration.http_client import post
from tests.integration.wire_client import TIMEOUT_S, connect_to
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.server import Gateway
from voicegate.gateway.server.tracing import Tracing
from voicegate.protocol import messages as wire

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@contextlib.asynccontextmanager
async def traced(script: Script | None = None) -> AsyncIterator[tuple[str, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)
    config = GatewayConfig(port=0, waiting_s=0.0, resume_s=0)
    gateway, stop = Gateway(config, FakeEngine(script), trace=tracing.observer), asyncio.Event()
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(gateway.serve_until(stop))
        await gateway.settled.wait()
        yield gateway.url, exporter
        stop.set()
    tracing.close()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("voicegate."): value for name, value in (span.attributes or {}).items()}


async def test_a_span_tells_an_utterances_life() -> None:
    async with traced() as (url, exporter):
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        async with connect_to(url, additional_headers=headers) as client:
            await client.speak("greeting", "sensitive words", voice="drone")
            await client.until(wire.Done)
            await client.send(wire.Open(context="silent"), wire.End("silent"))
            await client.until(wire.Done)
        (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind) == ("utterance", SpanKind.SERVER)
    assert [event.name for event in span.events] == ["taken up", "first audio"]
    taken_up, first_audio = (event.timestamp for event in span.events)
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= taken_up <= first_audio <= span.end_time
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert attributes(span).items() >= {"voice": "drone", "outcome": "done", "characters": 15, "codec": "opus"}.items()
    assert attributes(span)["audio_ms"] >= 14 * 60
    assert "sensitive" not in span.to_json()
    assert span.status.status_code is StatusCode.UNSET


async def test_a_request_by_http_has_a_span_too() -> None:
    async with traced() as (url, exporter):
        body = {"model": "tts-1", "voice": "hum", "input": "sensitive words", "response_format": "pcm"}
        status, _, _ = await post(url, "/v1/audio/speech", body, f"traceparent: 00-{TRACE}-{PARENT}-01")
        assert status == 200
        (span,) = exporter.get_finished_spans()
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == TRACE
    assert attributes(span).items() >= {"outcome": "done", "codec": "pcm_s16le", "voice": "hum"}.items()


async def test_ends_of_all_kinds_are_told() -> None:
    script = Script(max_utterances=1, faults={2: Fault(FaultKind.FAIL)})
    async with traced(script) as (url, exporter), connect_to(url) as client:
        await client.send(wire.Open(context="cut"), wire.Text("cut", "interrupted "))
        await client.until(wire.Alignment)
        await client.speak("refused", "no room")
        await client.until(wire.Error, "refused")
        await client.send(wire.Cancel("cut"))
        await client.until(wire.Cancelled)
        await client.speak("broken", "not to be said")
        await client.until(wire.Error, "broken")
        ends = [(attributes(span)["outcome"], span.status.status_code) for span in exporter.get_finished_spans()]
    ok, error = StatusCode.UNSET, StatusCode.ERROR
    assert ends == [("overloaded", error), ("cancelled", ok), ("engine_failed", error)]


def test_an_exit_does_not_wait_for_a_collector_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.tracing._FLUSH_S", 0.01)
    is_over = threading.Event()

    class Stuck(SpanProcessor):
        def shutdown(self) -> None:
            is_over.wait()

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Stuck())
    Tracing(provider).close()
    (closing,) = [thread for thread in threading.enumerate() if thread.name == "tracing-end"]
    is_over.set()
    closing.join()


@pytest.mark.parametrize("trace_parent", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", "x" * 8000])
async def test_a_parent_that_is_none_makes_a_span_of_its_own(trace_parent: str) -> None:
    async with traced() as (url, exporter):
        async with connect_to(url, additional_headers={"traceparent": trace_parent}) as client:
            await client.speak("a", "x")
            await client.until(wire.Done)
        (span,) = exporter.get_finished_spans()
    assert span.parent is None
