"""A blocking source, read without blocking the loop: order, errors, read-ahead, leaving early."""

import threading
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from tests.support.patience import PATIENCE_S
from tests.unit.clients.deadline import deadline
from voicegate.clients.python.threaded import iterate_in_thread


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    with deadline():
        yield


async def test_items_come_in_order() -> None:
    assert [item async for item in iterate_in_thread(lambda: range(1_000))] == list(range(1_000))


async def test_an_item_is_there_before_the_next_is_made() -> None:
    seen = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        seen.wait()
        yield 2

    items = iterate_in_thread(source)
    assert await anext(items) == 1
    seen.set()
    assert [item async for item in items] == [2]


async def test_an_error_comes_after_the_items_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise LookupError("gone")

    items = iterate_in_thread(source)
    assert await anext(items) == 1
    with pytest.raises(LookupError, match="gone"):
        await anext(items)


async def test_leaving_early_ends_a_source_that_was_read_ahead() -> None:
    ended = threading.Event()
    made: list[int] = []

    def source() -> Iterator[int]:
        try:
            for number in range(1_000_000):
                made.append(number)
                yield number
        finally:
            ended.set()

    async with aclosing(iterate_in_thread(source)) as items:
        async for _ in items:
            break
    assert ended.wait(PATIENCE_S)
    assert len(made) < 100
