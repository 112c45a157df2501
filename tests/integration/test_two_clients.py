"""Two clients of one server, over sockets, doing anything in any order: each context has its own audio and one end."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.integration.wire_client import Served, WireClient, serving
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire

MS_PER_CHARACTER = 60
CONTEXTS_PER_SOCKET = 2
CLIENTS = st.integers(0, 1)
CONTEXTS = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["hi ", "there, ", "x", "", "... ", "and so on and on. "])
FORMATS = st.builds(wire.Format, codec=st.sampled_from(["opus", "pcm_s16le"]), frame_ms=st.sampled_from([20, 60]))


@dataclass
class Turn:
    """Messages for one incarnation of a context."""

    text: str = ""
    is_open: bool = True  # takes text
    is_cancelled: bool = False


@dataclass
class Side:
    client: WireClient
    exits: contextlib.AsyncExitStack
    turns: dict[str, list[Turn]] = field(default_factory=dict)

    def latest(self, context: str) -> Turn | None:
        turns = self.turns.get(context, [])
        has_ended = len(ends_of(self.client, context)) == len(turns)
        return turns[-1] if turns and not has_ended else None


def ends_of(client: WireClient, context: str) -> list[Any]:
    return [message for heard in client.heard[context] for message in heard.messages if is_end(message)]


def is_end(message: Any) -> bool:
    return isinstance(message, wire.Done | wire.Cancelled) or (isinstance(message, wire.Error) and message.fatal)


class TwoClients(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._exits = contextlib.AsyncExitStack()
        script = Script(real_time_factor=0.001, chunk_ms=60)
        self._served: Served = self._run(
            self._exits.enter_async_context(serving(script, contexts_per_socket=CONTEXTS_PER_SOCKET))
        )
        self._sides = [self._run(self._connect()) for _ in range(2)]

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    async def _connect(self) -> Side:
        exits = contextlib.AsyncExitStack()
        return Side(await exits.enter_async_context(self._served.client()), exits)

    def _send(self, number: int, message: wire.ClientMessage) -> None:
        self._run(self._sides[number].client.send(message))

    @rule(number=CLIENTS, context=CONTEXTS, audio=FORMATS)
    def open(self, number: int, context: str, audio: wire.Format) -> None:
        """A speaking context may end at any moment, and only the server knows whether that was before it read this."""
        side = self._sides[number]
        client, was_open = side.client, side.latest(context) is not None
        num_open = sum(side.latest(each) is not None for each in side.turns)
        num_heard, num_refusals = len(client.heard[context]), len(client.refusals)
        self._send(number, wire.Open(context=context, format=audio))
        self._synchronise(number)
        assert len(client.live) <= CONTEXTS_PER_SOCKET
        if len(client.heard[context]) > num_heard:
            side.turns.setdefault(context, []).append(Turn())
        elif len(client.refusals) > num_refusals:
            assert client.refusals[-1].code == "too_many_contexts"
            assert num_open >= CONTEXTS_PER_SOCKET
        else:
            assert was_open, "and so it was told that there is one"

    @rule(number=CLIENTS, context=CONTEXTS, text=TEXTS)
    def say(self, number: int, context: str, text: str) -> None:
        turn = self._sides[number].latest(context)
        if turn is not None and turn.is_open:
            turn.text += text
        self._send(number, wire.Text(context, text))

    @rule(number=CLIENTS, context=CONTEXTS)
    def flush(self, number: int, context: str) -> None:
        self._send(number, wire.Flush(context))

    @rule(number=CLIENTS, context=CONTEXTS, played_ms=st.integers(0, 2000))
    def report(self, number: int, context: str, played_ms: int) -> None:
        self._send(number, wire.Playback(context, played_ms, buffer_ms=100))

    @rule(number=CLIENTS, context=CONTEXTS)
    def end(self, number: int, context: str) -> None:
        turn = self._sides[number].latest(context)
        if turn is not None:
            turn.is_open = False
        self._send(number, wire.End(context))

    @rule(number=CLIENTS, context=CONTEXTS)
    def cancel(self, number: int, context: str) -> None:
        turn = self._sides[number].latest(context)
        if turn is not None:
            turn.is_open, turn.is_cancelled = False, True
        self._send(number, wire.Cancel(context))

    @rule(number=CLIENTS)
    def read(self, number: int) -> None:
        self._synchronise(number)

    @rule(number=CLIENTS)
    def leave_and_come_back(self, number: int) -> None:
        self._run(self._sides[number].exits.aclose())
        self._sides[number] = self._run(self._connect())

    def _synchronise(self, number: int) -> None:
        """Read all that was sent before a ping, and its answer."""
        client = self._sides[number].client

        async def ask() -> None:
            await client.send(wire.Ping("here?"))
            await client.until(wire.Pong)

        self._run(ask())

    def teardown(self) -> None:
        try:
            for side in self._sides:
                self._run(self._hear_out(side))
                self._check(side)
            self._run(self._served.until(lambda engine: engine.num_live == 0))
        finally:
            for side in self._sides:
                self._run(side.exits.aclose())
            self._run(self._exits.aclose())
            self._runner.close()

    async def _hear_out(self, side: Side) -> None:
        """A player that was reported to stand still plays on."""
        for context, turns in side.turns.items():
            await side.client.send(wire.Playback(context, 10**6), wire.End(context))
            while len(ends_of(side.client, context)) < len(turns):
                await side.client.receive()

    def _check(self, side: Side) -> None:
        assert not side.client.live
        for context, turns in side.turns.items():
            heard = side.client.heard[context]
            assert len(heard) == len(turns)
            for turn, incarnation in zip(turns, heard, strict=True):
                (end,) = [message for message in incarnation.messages if is_end(message)]
                if isinstance(end, wire.Cancelled):
                    assert turn.is_cancelled
                    assert end.spoken_text + end.remaining_text == turn.text
                else:
                    assert isinstance(end, wire.Done)
                    assert end.audio_ms == MS_PER_CHARACTER * sum(map(str.isalnum, turn.text))
                    assert len(incarnation.packets) == end.packets


def test_an_open_that_is_refused_is_no_end_of_the_one_before_it() -> None:
    machine, audio = TwoClients(), wire.Format()
    machine.open(0, "c", audio)
    machine.open(0, "a", audio)
    machine.cancel(0, "c")
    machine.read(0)
    machine.open(0, "b", audio)
    machine.open(0, "c", audio)
    machine.cancel(0, "b")
    machine.open(0, "c", audio)
    machine.teardown()


def test_two_clients_in_any_order() -> None:
    run_state_machine_as_test(
        TwoClients,
        settings=settings(
            max_examples=15, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow], deadline=None
        ),
    )


@pytest.mark.soak
def test_two_clients_in_any_order_for_long() -> None:
    run_state_machine_as_test(
        TwoClients,
        settings=settings(
            max_examples=150, stateful_step_count=50, suppress_health_check=[HealthCheck.too_slow], deadline=None
        ),
    )
