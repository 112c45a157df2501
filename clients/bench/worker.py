"""A process of the bench's clients: carries out one plan and tells what became of each turn, as JSON lines.

    python -m voicegate.clients.bench.worker

stdin: the plan, then plan.Order, one a line; stdout: plan.Report, one a line. It holds so few streams that its event
loop is idle most of the time, and says how late it was all the same.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from voicegate.clients.bench import plan as planned
from voicegate.clients.bench.dialects import DIALECTS
from voicegate.clients.bench.dialects.conversation import Connect, Conversation, ConversationLost
from voicegate.clients.bench.listener import Listener
from voicegate.clients.bench.plan import Plan, Reader, Record, Report, Visit
from voicegate.clients.bench.stats import percentile

# Handshakes at once: more of them wait in the server's line, which is not what is measured.
_NUM_CONNECTING: Final = 8
_TICK_S: Final = 0.02
# Longest line of stdin: a plan of some hundred visits.
_LINE_BYTES: Final = 1 << 26


class Connections:
    """Those that nobody speaks on; opened ahead, as agents hold theirs."""

    def __init__(self, target: planned.Target, connect: Connect) -> None:
        self.num_late = 0
        self.connects_ms: list[float] = []
        self._connect = connect
        self._target = target
        self._free: list[Conversation] = []
        self._renewing: set[asyncio.Task[None]] = set()

    async def open(self, num: int) -> None:
        """Raises ConversationLost."""
        gate = asyncio.Semaphore(_NUM_CONNECTING)

        async def one() -> None:
            async with gate:
                self._free.append(await self._dial(Reader.PROMPT))

        await asyncio.gather(*(one() for _ in range(num)))

    async def take(self, reader: Reader) -> Conversation:
        """Raises ConversationLost."""
        if reader is Reader.SLOW:
            return await self._dial(reader)
        while self._free:
            conversation = self._free.pop()
            if not conversation.is_spent:
                return conversation
            self.replace(conversation, reader)  # its server does not wait for long
        self.num_late += 1
        return await self._dial(reader)

    async def _dial(self, reader: Reader) -> Conversation:
        """Raises ConversationLost."""
        begun_s = time.monotonic()
        conversation = await self._connect(self._target, reader)
        self.connects_ms.append(round((time.monotonic() - begun_s) * 1000, 2))
        return conversation

    async def give_back(self, conversation: Conversation, reader: Reader) -> None:
        if reader is Reader.SLOW:
            await conversation.close()
        else:
            self._free.append(conversation)

    def replace(self, conversation: Conversation, reader: Reader) -> None:
        """One that is of no use any more; the next is connected beside what goes on."""
        self._renewing.add(renewing := asyncio.create_task(self._renew(conversation, reader)))
        renewing.add_done_callback(self._renewing.discard)

    async def _renew(self, conversation: Conversation, reader: Reader) -> None:
        with suppress(ConversationLost):  # then `take` finds out, and tells
            await conversation.close()
            if reader is Reader.PROMPT:
                self._free.append(await self._dial(reader))

    async def close(self) -> None:
        for renewing in self._renewing:
            renewing.cancel()
        await asyncio.gather(*(conversation.close() for conversation in self._free), return_exceptions=True)


class LoopLag:
    """How late this process's timers fire."""

    def __init__(self) -> None:
        self.lags_s: list[float] = [0.0]

    async def watch(self) -> None:
        while True:
            due_s = time.monotonic() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self.lags_s.append(time.monotonic() - due_s)


async def carry_out(
    plan: Plan, orders: "asyncio.Queue[planned.Order]", tell: Callable[[Report], None], connect: Connect
) -> Report:
    """Returns when all visits have ended, or when it is told to stop. Raises ConversationLost."""
    connections, lag = Connections(plan.target, connect), LoopLag()
    await connections.open(plan.num_connections)
    tell(planned.Ready(plan.num_connections))
    began = await orders.get()
    if isinstance(began, planned.Stop):
        await connections.close()
        return planned.Finished(0.0, 0.0, 0.0, 0)
    cpu_s = time.process_time()
    watching = asyncio.create_task(lag.watch())
    visits = asyncio.gather(
        *(_follow(plan, number, visit, connections, began.start_s, tell) for number, visit in enumerate(plan.visits))
    )
    stopped = asyncio.create_task(orders.get())
    await asyncio.wait((visits, stopped), return_when=asyncio.FIRST_COMPLETED)
    if visits.done():
        visits.result()
    for waiting in (visits, stopped, watching):
        waiting.cancel()
    await asyncio.gather(visits, stopped, watching, return_exceptions=True)
    cpu_s = time.process_time() - cpu_s
    await connections.close()
    lags_ms = [each_s * 1000 for each_s in lag.lags_s]
    return planned.Finished(
        round(percentile(lags_ms, 0.99), 2),
        round(max(lags_ms), 2),
        round(cpu_s, 2),
        connections.num_late,
        tuple(connections.connects_ms),
    )


async def _follow(
    plan: Plan, number: int, visit: Visit, connections: Connections, start_s: float, tell: Callable[[Report], None]
) -> None:
    """One listener's turns, on one connection unless that is lost."""
    await asyncio.sleep(max(start_s + visit.due_s - time.monotonic(), 0.0))
    conversation: Conversation | None = None
    due_s = start_s + visit.due_s
    for index, turn in enumerate(visit.turns):
        if due_s > start_s + plan.last_start_s:
            break
        try:
            conversation = conversation or await connections.take(visit.reader)
        except ConversationLost as error:
            tell(planned.Told(_unconnected(visit, number, index, due_s, error)))
            break
        listener = Listener(conversation, turn, visit, due_s)
        outcome = await listener.listen(until_s=start_s + plan.stop_s)
        tell(planned.Told(listener.record(number, index, outcome)))
        if listener.is_lost or conversation.is_spent or outcome is planned.Outcome.CUT_OFF:
            connections.replace(conversation, visit.reader)
            conversation = None
        due_s = time.monotonic() + turn.pause_s
        if index + 1 < len(visit.turns) and due_s <= start_s + plan.last_start_s:
            await asyncio.sleep(turn.pause_s)
            due_s = max(due_s, time.monotonic())
    if conversation is not None:
        await connections.give_back(conversation, visit.reader)


def _unconnected(visit: Visit, number: int, index: int, due_s: float, error: ConversationLost) -> Record:
    turn = visit.turns[index]
    return Record(
        visit=number,
        turn=index,
        outcome=planned.Outcome.REFUSED if error.is_refused else planned.Outcome.FAILED,
        due_s=due_s,
        sent_s=due_s,
        ended_s=time.monotonic(),
        num_letters=len(turn.text),
        words_per_s=turn.words_per_s,
        is_slow=visit.reader is Reader.SLOW,
        arrivals=(),
        voice=turn.voice,
        message=str(error),
    )


async def run() -> int:
    """The process: orders from stdin, reports to stdout."""
    received = asyncio.StreamReader(limit=_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(received), sys.stdin)
    plan = msgspec.json.decode(await received.readline(), type=Plan)
    orders: asyncio.Queue[planned.Order] = asyncio.Queue()
    listening = asyncio.create_task(_take_orders(received, orders))
    try:
        _say(await carry_out(plan, orders, _say, DIALECTS[plan.target.dialect]))
    except ConversationLost as error:
        _say(planned.Broke(str(error)))
        return 1
    finally:
        listening.cancel()
    return 0


async def _take_orders(received: asyncio.StreamReader, orders: "asyncio.Queue[planned.Order]") -> None:
    """Until whoever gives them has gone: then there is nobody to work for."""
    while line := await received.readline():
        orders.put_nowait(msgspec.json.decode(line, type=planned.Order))
    orders.put_nowait(planned.Stop())


def _say(report: Report) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


def main() -> int:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(run())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed; a light client has none."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


if __name__ == "__main__":
    sys.exit(main())
