"""A package's asyncio world in a thread of its own: legs go in, news of them comes out. Knows no sequences.

The package's requests have to be made, and listened to, on one event loop. Its executor can die without a word
(docs/adr/0015), so every leg's silence is timed here.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from voicegate.engine.backends.legged.legs import Leg, LegNews
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.llm.backend import LlmDied

log = structlog.get_logger()

# Share of a time-out without any news, for the executor to count as dead rather than one leg as lost.
_QUIET_SHARE: Final = 0.5
# Legs that were begun and refused one after the other, none with a token of anybody's between, for it to count as dead:
# where its GPU fails it refuses all that it has, and goes on to the next. Lower -> some bad requests are taken for
# death; higher -> more listeners hear nothing before it is restarted.
_FRUITLESS_ROUNDS: Final = 5
# A look that comes so much too late, because nobody on this machine could listen, is followed by another as much later:
# what has come meanwhile is heard first. Lower -> a busy machine is taken for a dead executor.
_LATE_S: Final = 0.25
# A dead executor may never answer to its shutdown; the process ends without it.
_SHUTDOWN_PATIENCE_S: Final = 20.0
# Nor may a call into it ever return, as where a request waits on the socket of a worker that is gone.
_LOOP_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Made:
    """One response of a package. The last of a request has a `finish_reason`, as LegNews."""

    ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    num_cached_tokens: int = 0  # of the prompt; known with the last one


class Request(Protocol):
    """A leg in a package's hands. Only on the loop that asked for it."""

    def abort(self) -> bool:
        """Whether it is to be listened to until its last response; else listening to it may end at once."""

    def __aiter__(self) -> AsyncIterator[Made]: ...


class Library(Protocol):
    """All that is asked of a package."""

    @property
    def name(self) -> str:
        """For messages and logs."""

    @property
    def refusals(self) -> tuple[type[Exception], ...]:
        """Errors of `submit` and of a request for that request alone; anything else means that the executor is gone."""

    def submit(self, leg: Leg) -> Request: ...

    def shutdown(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Running:
    leg_id: int
    request: Request
    heard_s: float  # or when it was begun
    timeout_s: float
    fruitless_round: int  # in which it was begun
    has_begun: bool = False
    is_aborted: bool = False
    task: "asyncio.Task[None] | None" = None


class LegExecutor:
    """Called from one thread, but for its own."""

    def __init__(self, library: Library, *, first_token_timeout_s: float, token_timeout_s: float) -> None:
        self._library = library
        self._first_timeout_s = first_token_timeout_s
        self._timeout_s = token_timeout_s
        self._waker: Waker = NO_WAKER
        # Between both threads, under the condition.
        self._changed = threading.Condition()
        self._news: list[LegNews] = []
        self._death: str | None = None
        self._is_closed = False
        # The loop's.
        self._running: dict[int, _Running] = {}
        self._heard_s = 0.0  # anything of anybody
        self._fruitless_round = 0  # grows with each leg that was begun in it and refused
        self._watch: asyncio.TimerHandle | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=self._library.name, daemon=True)
        self._thread.start()

    # --- the caller's side ------------------------------------------------------------------------------------

    def set_waker(self, waker: Waker) -> None:
        self._waker = waker

    def submit(self, leg_id: int, leg: Leg) -> None:
        self._call(lambda: self._begin(leg_id, leg))

    def abort(self, leg_id: int) -> None:
        """No news of it is made any more; what was made may still be fetched."""
        self._call(lambda: self._abort(leg_id))

    def fetch(self) -> list[LegNews]:
        """In order. Raises LlmDied."""
        with self._changed:
            if self._death is not None:
                raise LlmDied(self._death)
            news, self._news = self._news, []
        return news

    def wait(self) -> None:
        """Until `fetch` has something or raises."""
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._death is not None or self._is_closed)

    def close(self) -> None:
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
        # The loop ends last: the package still calls it.
        closer = threading.Thread(target=self._library.shutdown, name=f"{self._library.name} shutdown", daemon=True)
        closer.start()
        closer.join(_SHUTDOWN_PATIENCE_S)
        if closer.is_alive():
            log.error("llm_executor_does_not_shut_down", backend=self._library.name, waited_s=_SHUTDOWN_PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LOOP_PATIENCE_S)
        if self._thread.is_alive():
            log.error("llm_executor_call_does_not_return", backend=self._library.name, waited_s=_LOOP_PATIENCE_S)

    def _call(self, function: Callable[[], None]) -> None:
        if not self._is_closed:
            self._loop.call_soon_threadsafe(function)

    # --- the loop's side --------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for running in list(self._running.values()):
            self._drop(running)
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.close()

    def _begin(self, leg_id: int, leg: Leg) -> None:
        if self._death is not None or self._is_closed:
            return
        try:
            request = self._library.submit(leg)
        except self._library.refusals as error:
            self._refused(leg_id, error, self._fruitless_round)
            return
        except Exception as error:  # noqa: BLE001 - told to whoever polls
            self._die(error)
            return
        running = _Running(leg_id, request, self._loop.time(), self._first_timeout_s, self._fruitless_round)
        self._running[leg_id] = running
        running.task = self._loop.create_task(self._listen(running))
        self._watch_until(running.heard_s + running.timeout_s)

    def _abort(self, leg_id: int) -> None:
        running = self._running.get(leg_id)
        if running is not None and not running.is_aborted:
            running.is_aborted = True
            if not running.request.abort():
                self._drop(running)

    async def _listen(self, running: _Running) -> None:
        try:
            async for made in running.request:
                self._heard(running)
                self._tell_of(running, made)
                if made.finish_reason is not None:
                    return
            self._tell(LegNews(running.leg_id, error="the LLM's executor ended this sequence without a last response"))
        except self._library.refusals as error:
            self._refused(running.leg_id, error, running.fruitless_round)
        except Exception as error:  # noqa: BLE001 - told to whoever polls
            self._die(error)
        finally:
            self._running.pop(running.leg_id, None)

    def _refused(self, leg_id: int, error: Exception, fruitless_round: int) -> None:
        log.warning("llm_executor_refused", backend=self._library.name, error=_told(error))
        # One step that fails is the end of all legs in it; that is one round.
        self._fruitless_round += fruitless_round == self._fruitless_round
        if self._fruitless_round >= _FRUITLESS_ROUNDS:
            self._die(f"it has refused {_FRUITLESS_ROUNDS} sequences one after the other: {_told(error)}")
        else:
            self._tell(LegNews(leg_id, error="the LLM's executor refused this sequence; see the log"))

    def _heard(self, running: _Running) -> None:
        running.heard_s = self._heard_s = self._loop.time()
        if not running.has_begun:
            running.has_begun, running.timeout_s = True, self._timeout_s
            self._watch_until(running.heard_s + running.timeout_s)

    def _tell_of(self, running: _Running, made: Made) -> None:
        if made.ids:
            self._fruitless_round = 0
        if running.is_aborted or not (made.ids or made.finish_reason is not None):
            return
        news = LegNews(running.leg_id, made.ids, made.finish_reason, num_cached_tokens=made.num_cached_tokens)
        self._tell(news)

    def _tell(self, news: LegNews) -> None:
        with self._changed:
            was_empty = not self._news
            self._news.append(news)
            self._changed.notify_all()
        if was_empty:
            self._waker.wake()

    def _die(self, error: Exception | str) -> None:
        if self._death is not None or self._is_closed:
            return
        exc_info = error if isinstance(error, Exception) else None
        log.error("llm_executor_died", backend=self._library.name, error=str(error), exc_info=exc_info)
        with self._changed:
            self._death = f"{self._library.name}: {error}"
            self._changed.notify_all()
        for running in list(self._running.values()):
            self._drop(running)
        self._waker.wake()

    def _drop(self, running: _Running) -> None:
        """Listen to it no more."""
        self._running.pop(running.leg_id, None)
        if running.task is not None and running.task is not asyncio.current_task(self._loop):
            running.task.cancel()

    # --- silence ----------------------------------------------------------------------------------------------

    def _watch_until(self, due_s: float) -> None:
        """Look at all legs then, if not before."""
        if self._watch is not None and self._watch.when() <= due_s:
            return
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(due_s, self._look)

    def _look(self) -> None:
        assert self._watch is not None
        due_s, now_s = self._watch.when(), self._loop.time()
        self._watch = None
        if now_s - due_s > _LATE_S:
            self._watch_until(now_s + _LATE_S)
            return
        for running in list(self._running.values()):
            if running.heard_s + running.timeout_s <= now_s:
                self._time_out(running, now_s)
        if self._running:
            self._watch_until(min(each.heard_s + each.timeout_s for each in self._running.values()))

    def _time_out(self, running: _Running, now_s: float) -> None:
        is_quiet = now_s - self._heard_s >= running.timeout_s * _QUIET_SHARE
        if running.is_aborted:
            log.warning("llm_executor_abort_unanswered", backend=self._library.name, leg=running.leg_id)
        elif is_quiet:
            self._die(f"nothing has come of it for {running.timeout_s:g} s, of any sequence")
            return
        else:
            self._tell(LegNews(running.leg_id, error=f"the LLM made no token for {running.timeout_s:g} s"))
            running.request.abort()
        self._drop(running)


def _told(error: Exception) -> str:
    """A package may wrap what happened in an error without a message."""
    return str(error) or repr(error.__cause__ or error)
