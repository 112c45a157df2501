"""A blocking iterator, such as a pipe or an HTTP response, as an asynchronous one. Runs it in a daemon thread."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Items read ahead. Lower stalls a source that comes in bursts; higher reads more of what may not be wanted.
_MAX_AHEAD: Final = 64


@dataclass(frozen=True, slots=True)
class _Item(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class _End:
    error: BaseException | None = None


async def iterate_in_thread(make_source: Callable[[], Iterable[T]]) -> AsyncGenerator[T]:
    """Items that `make_source()` gives, or raises, as they come. Both run in the thread.

    Left early, the thread ends with its next item; until then a blocked read lasts.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[_Item[T] | _End] = asyncio.Queue()
    room = threading.Semaphore(_MAX_AHEAD)
    is_left = threading.Event()

    def put(item: _Item[T] | _End) -> None:
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(arrived.put_nowait, item)

    def run() -> None:
        try:
            for value in make_source():
                room.acquire()
                if is_left.is_set():
                    return
                put(_Item(value))
            put(_End())
        except BaseException as error:  # noqa: BLE001 - raised again where the items are read
            put(_End(error))

    threading.Thread(target=run, name="iterate_in_thread", daemon=True).start()
    try:
        while True:
            match await arrived.get():
                case _Item(value):
                    room.release()
                    yield value
                case _End(error):
                    if error is not None:
                        raise error
                    return
    finally:
        is_left.set()
        room.release()
