"""Frames into a pipe that may be full: nobody waits, none is torn, and none overtakes another."""

import os
import threading
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pytest

from voicegate.engine.audio.encoder_wire import Frame, FrameReader, pack_header, read_frame
from voicegate.engine.audio.input_pipe import InputPipe

BODY = np.random.default_rng(0).bytes(100_000)


class Pipe:
    def __init__(self) -> None:
        source, target = os.pipe()
        self.num_rests = 0
        self.source: BinaryIO = os.fdopen(source, "rb")
        self.input = InputPipe(os.fdopen(target, "wb"), self._note_rest)

    def _note_rest(self) -> None:
        self.num_rests += 1

    def put(self, kind: int, number: int, body: bytes = BODY) -> None:
        self.input.put(pack_header(kind, number, 0, len(body)), body)

    def read(self) -> Frame | None:
        return read_frame(self.source)

    def read_all(self) -> list[Frame]:
        """Till the end, writing what waits whenever there is room."""
        reader, frames = FrameReader(), []
        while True:
            self.input.write_rest()
            data = os.read(self.source.fileno(), 70_000)
            if not data:
                return frames
            frames += reader.feed(data)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.input.close()
    made.source.close()


def test_what_the_pipe_takes_is_there_at_once(pipe: Pipe) -> None:
    pipe.put(1, 7, b"abc")
    assert pipe.read() == (1, 7, 0, b"abc")
    assert pipe.num_rests == 0
    assert pipe.input.write_rest()


def test_what_it_does_not_take_waits_in_order_and_the_end_behind_it(pipe: Pipe) -> None:
    for number in range(50):  # 5 MB
        pipe.put(1, number)
    assert pipe.num_rests == 1, "who puts more says nothing that is not known"
    assert not pipe.input.write_rest(), "nobody has read"
    pipe.input.end()
    pipe.put(1, 50)
    assert pipe.read_all() == [(1, number, 0, BODY) for number in range(50)]


def test_a_rest_behind_one_that_was_written_is_told_anew(pipe: Pipe) -> None:
    for number in range(20):
        pipe.put(1, number)
    while not pipe.input.write_rest():
        os.read(pipe.source.fileno(), 70_000)
    for number in range(20):
        pipe.put(1, number)
    assert pipe.num_rests == 2


def test_its_owner_may_change_what_was_put(pipe: Pipe) -> None:
    samples = np.zeros(24_000, np.float32)
    for number in range(20):
        samples[:] = number
        body = samples.view(np.uint8).data
        pipe.input.put(pack_header(1, number, 0, len(body)), body)
    samples[:] = -1
    pipe.input.end()
    got = [np.frombuffer(body, np.float32) for _, _, _, body in pipe.read_all()]
    assert len(got) == 20
    assert all((body == number).all() for number, body in enumerate(got))


def test_two_who_put_at_once_tear_no_frame(pipe: Pipe) -> None:
    def put(kind: int) -> None:
        for number in range(300):
            pipe.put(kind, number, BODY[: 1 + 37 * number])

    threads = [threading.Thread(target=put, args=(kind,)) for kind in range(2)]

    def end() -> None:
        for thread in threads:
            thread.join()
        pipe.input.end()

    for thread in threads:
        thread.start()
    threading.Thread(target=end).start()
    frames = pipe.read_all()
    for kind in range(2):
        assert [frame[1:] for frame in frames if frame[0] == kind] == [
            (number, 0, BODY[: 1 + 37 * number]) for number in range(300)
        ]


@pytest.mark.parametrize("has_rest", [False, True])
def test_where_nobody_reads_any_more_frames_are_dropped(pipe: Pipe, has_rest: bool) -> None:
    if has_rest:
        for number in range(20):
            pipe.put(1, number)
    pipe.source.close()
    pipe.put(1, 20)
    assert pipe.input.write_rest()
    pipe.put(1, 21)
    assert not pipe.input._rest
    pipe.input.end()


def test_closing_drops_what_waits(pipe: Pipe) -> None:
    for number in range(20):
        pipe.put(1, number)
    pipe.input.close()
    pipe.put(1, 20)
    assert pipe.input.write_rest()
    assert 0 < len(pipe.read_all()) < 20
