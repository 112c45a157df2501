"""An engine process's own side, with a front that speaks as fronts do, does not read, or goes away."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.support.patience import PATIENCE_S
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Cancelled,
    Codec,
    Done,
    Engine,
    EngineEvent,
    EngineInfo,
    EngineStats,
    Failed,
    ListenerReport,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.load.progress import Progress
from voicegate.engine.process import channel, commands
from voicegate.engine.process.child import EXIT_FAILED, EXIT_OK, FrontGone, serve_engine
from voicegate.engine.process.wire import Command, Frames, Submission, Told, frame, unpack_event

ID = UtteranceId("u")
REQUEST = UtteranceRequest(ID, "hum", AudioFormat(codec=Codec.PCM_S16LE))


class Front:
    """The other side, by hand."""

    def __init__(self, end: socket.socket, serving: "asyncio.Task[int]") -> None:
        self.end = end
        self.serving = serving
        self._frames = Frames()
        self._come: list[tuple[int, int, bytes]] = []
        self._loop = asyncio.get_running_loop()

    async def send(self, kind: Command, number: int = 0, body: bytes = b"") -> None:
        await self._loop.sock_sendall(self.end, frame(kind, number, body))

    async def submit(self, text: str) -> None:
        await self.send(Command.SUBMIT, 0, msgspec.json.encode(Submission(REQUEST, ())))
        await self.send(Command.PUSH, 0, text.encode())
        await self.send(Command.END, 0)

    async def next(self) -> tuple[Told, bytes]:
        """But for states and rooms."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                while self._come:
                    kind, _, body = self._come.pop(0)
                    if kind not in (Told.STATE, Told.ROOM):
                        return Told(kind), body
                data = await self._loop.sock_recv(self.end, 1 << 16)
                assert data, "the process has ended"
                self._come += self._frames.feed(data)

    async def next_event(self) -> EngineEvent:
        kind, body = await self.next()
        return unpack_event(kind, ID, body)

    async def until_end(self) -> tuple[list[AudioReady], EngineEvent]:
        audio = []
        while not isinstance(event := await self.next_event(), Done | Failed):
            if isinstance(event, AudioReady):
                audio.append(event)
        return audio, event


@asynccontextmanager
async def serving(
    engine: Engine, make: Callable[[bytes, Progress], Engine] | None = None, *, is_ready: bool = True
) -> AsyncIterator[Front]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    task = asyncio.create_task(serve_engine(theirs, make or (lambda _greeting, _progress: engine)))
    front = Front(ours, task)
    try:
        await front.send(Command.GREETING, 0, b"hello")
        if is_ready:
            kind, body = await front.next()
            assert kind is Told.READY
            assert msgspec.json.decode(body, type=EngineInfo) == engine.info
        yield front
    finally:
        ours.close()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait({task})
        task.exception()  # looked at, where a test does not ask
        await engine.close()


async def test_it_speaks_and_ends_when_it_is_told_to() -> None:
    async with serving(FakeEngine()) as front:
        await front.submit("ten letters")
        audio, end = await front.until_end()
        assert isinstance(end, Done)
        assert sum(len(event.packets) for event in audio) == end.num_packets == 30
        await front.send(Command.CLOSE)
        with pytest.raises(AssertionError, match="has ended"):
            await front.next()
        assert await front.serving == EXIT_OK


async def test_what_it_speaks_fails_before_it_ends() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.STALL)}))
    async with serving(engine) as front:
        await front.submit("never said")
        await front.send(Command.CLOSE)
        _, end = await front.until_end()
        assert isinstance(end, Failed)


async def test_an_engine_that_dies_ends_the_process() -> None:
    async with serving(FakeEngine(Script(faults={0: Fault(FaultKind.DIE)}))) as front:
        await front.submit("never said")
        with pytest.raises(AssertionError, match="has ended"):
            await front.until_end()
        assert await front.serving == EXIT_FAILED


@pytest.mark.parametrize("is_ready", [True, False])
async def test_a_front_that_goes_away_ends_it(is_ready: bool) -> None:
    class Loading(FakeEngine):
        async def start(self) -> None:
            await (super().start() if is_ready else asyncio.get_running_loop().create_future())

    async with serving(Loading(), is_ready=is_ready) as front:
        front.end.close()
        with pytest.raises(FrontGone):
            await front.serving


async def test_it_tells_how_it_loads() -> None:
    class Loading(FakeEngine):
        def __init__(self, progress: Progress) -> None:
            super().__init__()
            self._progress = progress

        async def start(self) -> None:
            await asyncio.to_thread(self._load)
            await super().start()

        def _load(self) -> None:
            self._progress.line("weights: 1.0 s")
            self._progress.share("kernels", 1, 3)

    def make(greeting: bytes, progress: Progress) -> Engine:
        assert greeting == b"hello"
        return Loading(progress)

    async with serving(FakeEngine(), make, is_ready=False) as front:
        assert await front.next() == (Told.LINE, b"weights: 1.0 s")
        kind, body = await front.next()
        assert (kind, msgspec.json.decode(body)) == (Told.SHARE, ["kernels", 1, 3])


async def test_a_front_that_does_not_read_has_no_more_made_than_the_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_FULL_BYTES", 1 << 16)
    engine = FakeEngine(Script(max_lead_ms=1_000))
    async with serving(engine) as front:
        front.end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        await front.submit("letters " * 100)  # 42 s of speech, 2 MB
        await engine.until(lambda: bool(engine.reports))
        assert engine.reports == [(ID, ListenerReport(is_playing=False))]
        await front.send(Command.NOTE, 0, msgspec.json.encode(ListenerReport(played_ms=40, num_underruns=1)))
        await front.send(Command.PUSH, 7, b"x")  # of nobody: read behind the report, and nothing
        (live,) = engine._live.values()
        made_ms = -1
        while made_ms != live.speech.audio_ms:
            made_ms = live.speech.audio_ms
            await asyncio.sleep(0.05)
        assert made_ms < 20_000
        audio, end = await front.until_end()
        assert engine.reports[-1] == (ID, ListenerReport(num_underruns=1)), "as it was told meanwhile, but for the time"
        assert isinstance(end, Done)
        assert sum(len(event.packets) for event in audio) == end.num_packets
        assert end.audio_ms == 700 * 60


async def test_calls_on_what_has_ended_are_nothing() -> None:
    async with serving(FakeEngine()) as front:
        await front.submit("x")
        await front.until_end()
        for kind, body in (
            (Command.PUSH, b"x"),
            (Command.FLUSH, b"f"),
            (Command.END, b""),
            (Command.NOTE, b"{}"),
            (Command.CANCEL, b"null"),
        ):
            await front.send(kind, 0, body)
        await front.submit("again")
        _, end = await front.until_end()
        assert isinstance(end, Done)


async def test_a_fault_in_what_it_tells_of_itself_ends_it_at_once() -> None:
    class Untold(FakeEngine):
        def stats(self) -> EngineStats:
            if self.requests:
                raise ZeroDivisionError
            return EngineStats()

    async with serving(Untold()) as front:
        await front.submit("")
        with pytest.raises(ExceptionGroup, match="unhandled errors"):
            await front.serving


class Filling(FakeEngine):
    """Says that there is room for more than there is."""

    def __init__(self) -> None:
        super().__init__(Script(max_utterances=1))

    @property
    def room(self) -> int:
        return 10


def submission(name: str) -> bytes:
    return msgspec.json.encode(Submission(UtteranceRequest(UtteranceId(name), "hum"), ()))


async def test_who_comes_when_there_is_no_room_any_more_waits_for_a_moment() -> None:
    async with serving(Filling()) as front:
        for number, name in enumerate(("first", "second", "third", "fourth")):
            await front.send(Command.SUBMIT, number, submission(name))
            await front.send(Command.PUSH, number, b"ten ")
            await front.send(Command.PUSH, number, b"letters ")
        await front.send(Command.CANCEL, 2, b"null")
        kind, body = await until_kind(front, Told.CANCELLED)
        assert unpack_event(kind, ID, body) == Cancelled(UtteranceId("third"), 0, 0, "", "ten letters ")
        for number in (0, 1, 3):
            await front.send(Command.END, number)
        done = [unpack_event(Told.DONE, ID, (await until_kind(front, Told.DONE))[1]) for _ in range(3)]
        assert [event.utterance_id for event in done] == ["first", "second", "fourth"]
        assert {event.audio_ms for event in done if isinstance(event, Done)} == {600}


async def test_who_waits_for_too_long_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_PATIENCE_S", 0.0)
    async with serving(Filling()) as front:
        await front.send(Command.SUBMIT, 0, submission("first"))
        await front.send(Command.SUBMIT, 1, submission("second"))
        kind, body = await until_kind(front, Told.FAILED)
        assert unpack_event(kind, ID, body) == Failed(UtteranceId("second"), "1 utterances run already")


class Faulty(Filling):
    def submit(self, request: UtteranceRequest) -> None:
        if request.utterance_id == "faulty" and not self.num_live:  # there is room for it
            raise ValueError("a fault of ours")
        super().submit(request)


@pytest.mark.parametrize("names", [("faulty", "first"), ("first", "faulty", "last")])
async def test_a_fault_at_one_is_not_the_others(names: tuple[str, ...]) -> None:
    """Neither where it is submitted at once nor where it has waited for room."""
    async with serving(Faulty()) as front:
        for number, name in enumerate(names):
            await front.send(Command.SUBMIT, number, submission(name))
            await front.send(Command.PUSH, number, b"ten letters ")
            await front.send(Command.END, number)
        ends = {}
        while len(ends) < len(names):
            kind, body = await front.next()
            if kind in (Told.DONE, Told.FAILED):
                end = unpack_event(kind, ID, body)
                ends[end.utterance_id] = type(end)
        assert ends == {UtteranceId(name): Failed if name == "faulty" else Done for name in names}


async def until_kind(front: Front, kind: Told) -> tuple[Told, bytes]:
    while (got := await front.next())[0] is not kind:
        pass
    return got
