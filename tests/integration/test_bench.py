"""The bench's client processes against a real gateway with the FakeEngine: every kind of scenario, small."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import ANY

import pytest
import websockets
from websockets.asyncio.server import ServerConnection

from tests.integration.wire_client import serving
from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from voicegate.clients.bench import table
from voicegate.clients.bench.client_run import BenchFailed
from voicegate.clients.bench.dialects import DIALECTS, native, openai
from voicegate.clients.bench.dialects.conversation import Conversation, ConversationLost
from voicegate.clients.bench.plan import Outcome, Reader, Record, Target, Turn
from voicegate.clients.bench.scenario import Scenario, parse
from voicegate.clients.bench.schedule import Settings
from voicegate.clients.bench.sentences import Texts
from voicegate.clients.bench.session import Bench, left_behind
from voicegate.clients.bench.worker import Connections
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import UtteranceId
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol import messages as wire
from voicegate.protocol.messages import STREAM_PATH

MS_PER_CHARACTER = Script().ms_per_character
TEXTS = Texts(short=("One, two.",), sentences=("This is a sentence.",), paragraphs=("This is one. And this is two.",))
SETTINGS = Settings(texts=TEXTS, duration_s=0.6, num_alone=3, alone_limit_s=PATIENCE_S)


pytestmark = pytest.mark.usefixtures("no_hang")


class Told:
    """Output of a bench beside its rows."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def on_records(self, _scenario: Scenario, _start_s: float, records: Sequence[Record]) -> None:
        self.records += records


def bench(target: Target | str, told: Told, settings: Settings = SETTINGS) -> Bench:
    return Bench(Target(target) if isinstance(target, str) else target, settings, on_records=told.on_records)


async def test_one_stream_alone_hears_sentence_after_sentence(url: str) -> None:
    told = Told()
    row = await bench(url, told).measure(parse("alone:40j"))
    assert [record.turn for record in told.records] == [0, 1, 2]
    assert row["first_audio_ms"]["num"] == 3
    assert row["first_audio_ms_by_writer"].keys() == {"40"}
    assert sum(row["outcomes"].values()) == 3
    assert not row["messages"]


async def test_a_closed_load_is_heard_to_its_ends(url: str) -> None:
    told = Told()
    row = await bench(url, told).measure(parse("closed:3"))
    assert {record.visit for record in told.records} == {0, 1, 2}
    assert {record.outcome for record in told.records} == {Outcome.DONE}
    sounding = {sum(map(str.isalnum, text)) for text in (*TEXTS.short, *TEXTS.sentences, *TEXTS.paragraphs)}
    spoken = {round(sum(num for _, num in record.arrivals) / 48 / MS_PER_CHARACTER) for record in told.records}
    assert spoken <= sounding
    assert row["outcomes"]["done"] == row["first_audio_ms"]["num"]
    assert row["left_behind"]["utterances"] == row["left_behind"]["contexts"] == 0
    assert row["connect_ms"]["num"] >= 3


async def test_a_mixed_load_has_interrupted_and_slow_listeners() -> None:
    told = Told()
    settings = Settings(texts=TEXTS, duration_s=1.0, seconds_per_letter=0.06, seed=3)
    async with running_gateway(GatewayConfig(), FakeEngine(Script(real_time_factor=0.9))) as url:
        row = await bench(url, told, settings).measure(parse("mixed:45"))
    assert row["clients"]["num_processes"] == 2
    assert len({(record.visit, record.turn) for record in told.records}) == len(told.records), "of both processes"
    assert {Outcome.DONE, Outcome.CANCELLED} <= {record.outcome for record in told.records}
    assert row["outcomes"]["failed"] == row["outcomes"]["refused"] == 0, row["messages"]
    assert any(record.turn == 1 for record in told.records)  # who has interrupted goes on at once
    assert any(record.is_slow for record in told.records)


async def test_refusals_are_counted_with_their_reason() -> None:
    told = Told()
    async with running_gateway(GatewayConfig(max_contexts=1, waiting_contexts=0), FakeEngine()) as url:
        row = await bench(url, told).measure(parse("closed:3"))
    assert row["outcomes"]["refused"]
    assert "overloaded" in row["messages"][0]


async def in_all_dialects(url: str, scenario: str, settings: Settings = SETTINGS) -> dict[str, list[Record]]:
    async def measured(dialect: str) -> list[Record]:
        told = Told()
        await bench(Target(url.removesuffix(STREAM_PATH), dialect), told, settings).measure(parse(scenario))
        return told.records

    records = await asyncio.gather(*map(measured, DIALECTS))
    return dict(zip(DIALECTS, records, strict=True))


async def test_every_dialect_hears_what_the_native_one_does(url: str) -> None:
    sounding = {sum(map(str.isalnum, text)) for text in (*TEXTS.short, *TEXTS.sentences, *TEXTS.paragraphs)}
    settings = replace(SETTINGS, num_alone=2)  # its turns are counted, however long a busy machine takes for them
    for dialect, records in (await in_all_dialects(url, "alone:whole", settings)).items():
        assert [record.outcome for record in records] == [Outcome.DONE] * 2, (dialect, [r.message for r in records])
        assert [record.turn for record in records] == [0, 1], dialect
        spoken = {round(sum(num for _, num in record.arrivals) / 48 / MS_PER_CHARACTER) for record in records}
        assert spoken <= sounding, dialect


@pytest.mark.parametrize(("dialect", "may_be_paced"), [("openai", False), ("vllm-omni", True)])
async def test_where_a_protocol_cannot_ask_for_haste_it_is_told(url: str, dialect: str, may_be_paced: bool) -> None:
    settings = replace(SETTINGS, duration_s=0.1)
    target = Target(url.removesuffix(STREAM_PATH), dialect)
    row = await bench(target, Told(), settings).measure(parse("closed:1"))
    assert row["may_be_paced"] is may_be_paced
    assert any("cannot ask for haste" in line for line in table.lines("closed:1", row)) is may_be_paced


async def test_openai_asks_for_audio_as_it_is_made_and_takes_no_events_for_it() -> None:
    asked = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r")[0])
        asked.append(json.loads(await reader.readexactly(length)))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        conversation = await openai.connect(Target(f"http://127.0.0.1:{port}", "openai"), Reader.PROMPT)
        await conversation.begin(Turn(()))
        await conversation.say("Hello.")
        await conversation.end()
        with pytest.raises(ConversationLost, match="answers in events"):
            await conversation.receive()
        await conversation.close()
    assert [(each["stream"], each["stream_format"], each["response_format"]) for each in asked] == [
        (True, "audio", "pcm")
    ]


async def test_every_dialect_can_be_interrupted() -> None:
    settings = Settings(texts=TEXTS, num_alone=2)
    async with running_gateway(GatewayConfig(), FakeEngine(Script(ms_per_character=200, real_time_factor=0.9))) as url:
        for dialect, records in (await in_all_dialects(url, "alone:40", settings)).items():
            outcomes = [record.outcome for record in records]
            assert outcomes == [Outcome.CANCELLED] * 2, (dialect, [r.message for r in records])
            are_told = [record.stopped_s is not None for record in records]
            assert are_told == [dialect in {"native", "deepgram"}] * 2, dialect


async def test_no_dialect_has_a_writers_words_spoken_one_by_one() -> None:
    """A flush speaks what there is: one at the end is a protocol's own way to end, one a word cuts sentences up."""

    class Counting(FakeEngine):
        def __init__(self) -> None:
            super().__init__()
            self.flushed: Counter[UtteranceId] = Counter()

        def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
            self.flushed[utterance_id] += 1
            super().flush_text(utterance_id, flush_id)

    for dialect in DIALECTS:
        async with running_gateway(GatewayConfig(), engine := Counting()) as url:
            target = Target(url.removesuffix(STREAM_PATH), dialect)
            await bench(target, Told(), replace(SETTINGS, num_alone=1)).measure(parse("alone:40"))
        assert engine.requests, dialect
        assert max(engine.flushed.values(), default=0) <= 1, dialect


async def test_what_a_server_still_does_for_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.clients.bench.session._PATIENCE_S", 0.0)
    stall = Script(faults={0: Fault(FaultKind.STALL, after_ms=240)})
    async with serving(stall) as served, served.client() as client:
        assert await left_behind(Target(served.url)) == {"utterances": 0, "contexts": 0, "after_ms": ANY}
        await client.send(wire.Open(context="a"), wire.Text("a", "goes on and on"))
        await served.until(lambda engine: engine.num_live == 1)
        left = await left_behind(Target(served.url.replace("ws://", "http://").replace("/stream", "/audio/speech")))
        assert left == {"utterances": 1, "contexts": 1, "after_ms": ANY}
    for other in (served.url, "http://"):  # nobody there, no address
        assert await left_behind(Target(other)) is None


async def test_nobody_there_is_one_line() -> None:
    with pytest.raises(BenchFailed, match="cannot connect"):
        await bench("ws://127.0.0.1:9", Told()).measure(parse("closed:1"))


async def test_a_server_that_goes_away_fails_its_listeners_and_not_the_bench() -> None:
    told = Told()
    engine = FakeEngine()

    async def leave() -> None:
        async with running_gateway(GatewayConfig(), engine) as url:
            served.set_result(url)
            await engine.until(lambda: engine.num_live > 0)

    served: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    gateway = asyncio.create_task(leave())
    row = await bench(await served, told).measure(parse("alone:2"))
    await gateway
    assert row["outcomes"]["failed"] + row["outcomes"]["refused"] >= 1
    assert row["messages"]
    gone = [record.outcome for record in told.records if "cannot connect" in record.message]
    assert gone == [Outcome.FAILED], "nobody was there to refuse"


async def test_a_connection_is_refused_for_want_of_room_or_not_at_all() -> None:
    async with running_gateway(GatewayConfig(max_sockets=1), FakeEngine()) as url:
        held = await native.connect(Target(url), Reader.PROMPT)
        with pytest.raises(ConversationLost, match="HTTP 503") as full:
            await native.connect(Target(url), Reader.PROMPT)
        await held.close()
    with pytest.raises(ConversationLost, match="cannot connect") as gone:
        await native.connect(Target(url), Reader.PROMPT)
    assert (full.value.is_refused, gone.value.is_refused) == (True, False)


async def given_up(target: Target) -> None:
    """Two connections to a server that hangs up on the first one: the second is taken."""
    made: list[Conversation] = []

    async def connect(target: Target, reader: Reader) -> Conversation:
        made.append(await DIALECTS[target.dialect](target, reader))
        return made[-1]

    connections = Connections(target, connect)
    await connections.open(1)
    await until(lambda: made[0].is_spent)
    taken = await connections.take(Reader.PROMPT)
    assert taken is not made[0]
    assert not taken.is_spent
    await taken.close()
    await connections.close()


async def test_a_socket_that_its_server_gave_up_is_no_turns() -> None:
    """vLLM-Omni hangs up on who is silent for ten seconds, and a bench holds sockets for turns to come."""
    first = itertools.count()

    async def serve(socket: ServerConnection) -> None:
        if next(first):
            await socket.wait_closed()

    async with websockets.serve(serve, "127.0.0.1", 0) as server:
        (listening,) = server.sockets
        await given_up(Target(f"ws://127.0.0.1:{listening.getsockname()[1]}", dialect="vllm-omni"))


async def test_a_kept_connection_that_its_server_gave_up_is_no_turns() -> None:
    writers: list[asyncio.StreamWriter] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if len(writers) == 1:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        (listening,) = server.sockets
        await given_up(Target(f"http://127.0.0.1:{listening.getsockname()[1]}", dialect="openai"))
        for writer in writers:
            writer.close()
