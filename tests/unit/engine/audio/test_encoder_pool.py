"""Encoder processes make what an encoder here makes, in order, and import little for it."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest

from tests.support.patience import PATIENCE_S
from voicegate.engine import units
from voicegate.engine.audio.encoder_pool import EncoderProcesses
from voicegate.engine.audio.encoder_process import EncoderServer
from voicegate.engine.audio.encoder_wire import (
    FrameReader,
    Operation,
    Status,
    pack_packets,
    read_frame,
    unpack_packets,
    write_frame,
)
from voicegate.engine.audio.encoding import Encoded, Encoders, LocalEncoders
from voicegate.engine.audio.input_pipe import InputPipe, Piece
from voicegate.engine.audio.outlet import Delivered, Outlet
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Cancelled,
    Codec,
    Done,
    EngineEvent,
    Unsupported,
    UtteranceId,
)

OPUS = AudioFormat()
PCM = AudioFormat(codec=Codec.PCM_S16LE)
NAME = UtteranceId("a")
SOUND = np.random.default_rng(0).uniform(-0.3, 0.3, 40 * units.SAMPLES_PER_FRAME + 123).astype(np.float32)


@pytest.fixture(scope="module")
def processes() -> Iterator[EncoderProcesses]:
    pool = EncoderProcesses(2)
    yield pool
    pool.close()


def spoken(encoders: Encoders, audio: AudioFormat) -> list[EngineEvent]:
    """All of SOUND through an outlet, with a flush in the middle; returns when the end event has left."""
    events: list[EngineEvent] = []
    has_ended = threading.Event()

    def sink(new: list[EngineEvent]) -> None:
        events.extend(new)
        if isinstance(events[-1], Done):
            has_ended.set()

    way_out = Outlet(NAME, encoders.open(audio), frame_ms=20, sink=sink, clock=lambda: 0.0)
    for index, part in enumerate(np.array_split(SOUND, 7)):
        way_out.send_audio(part)
        if index == 3:
            way_out.flush()
    way_out.finish(lambda delivered: Done(NAME, delivered.num_samples, delivered.num_packets, 0))
    assert has_ended.wait(PATIENCE_S)
    return events


def packets(events: list[EngineEvent]) -> list[bytes]:
    return [packet for event in events if isinstance(event, AudioReady) for packet in event.packets]


@pytest.mark.parametrize("audio", [OPUS, PCM])
def test_a_process_makes_the_packets_that_are_made_here(processes: EncoderProcesses, audio: AudioFormat) -> None:
    here = spoken(LocalEncoders(), audio)
    for _ in range(3):  # one process or the other, a fresh encoder each time
        there = spoken(processes, audio)
        assert packets(there) == packets(here)
        assert there[-1] == here[-1]


def test_a_format_that_cannot_be_made_is_refused_at_once(processes: EncoderProcesses) -> None:
    with pytest.raises(Unsupported):
        processes.open(AudioFormat(codec=Codec.PCM_S16LE, sample_rate_hz=16_000))


def test_cancels_amid_encoding_end_with_one_event_that_counts_what_left(processes: EncoderProcesses) -> None:
    for _ in range(30):
        events: list[EngineEvent] = []
        way_out = Outlet(NAME, processes.open(OPUS), frame_ms=20, sink=events.extend, clock=lambda: 0.0)
        for part in np.array_split(SOUND, 5):
            way_out.send_audio(part)
        told: list[Delivered] = []

        def end(delivered: Delivered, told: list[Delivered] = told) -> Cancelled:
            told.append(delivered)
            return Cancelled(NAME, 0, 0, "", "")

        way_out.close(end)
        assert isinstance(events[-1], Cancelled)
        assert told[0].num_packets == len(packets(events))
    assert packets(spoken(processes, OPUS)), "the processes go on"


def test_a_process_hears_of_an_utterance_with_its_first_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """To write wakes it, which takes the engine's thread as long as all else of a new request."""
    puts: list[int] = []
    put = InputPipe.put

    def counted(self: InputPipe, *pieces: Piece) -> None:
        puts.append(len(pieces))
        put(self, *pieces)

    monkeypatch.setattr(InputPipe, "put", counted)
    pool = EncoderProcesses(1)
    pool.open(OPUS).close()
    silent, encoding = pool.open(OPUS), pool.open(OPUS)
    assert puts == []
    answers: list[Encoded] = []
    encoding.encode(SOUND, answers.append)
    assert puts == [4], "header and format, header and samples"
    encoding.encode(SOUND, answers.append)
    silent.finish(answers.append)
    pool.close()
    assert [answer.num_samples for answer in answers] == [len(SOUND), len(SOUND), 0]


@pytest.mark.parametrize("num_frames", [5, 30])  # all in the pipe; 2.3 MB, most of which wait here
def test_closing_waits_for_what_was_asked(num_frames: int) -> None:
    pool = EncoderProcesses(1)
    answers: list[Encoded] = []
    encoding = pool.open(OPUS)
    for _ in range(num_frames):
        encoding.encode(SOUND, answers.append)
    pool.close()
    assert [answer.num_samples for answer in answers] == num_frames * [len(SOUND)]


def test_an_encoder_that_fails_says_so_and_the_others_go_on() -> None:
    source, target = BytesIO(), BytesIO()
    write_frame(source, Operation.ENCODE, 7, 0, b"1234")  # was never opened
    source.seek(0)
    EncoderServer().serve(source, target)
    target.seek(0)
    assert read_frame(target) == (Status.READY, 0, 0, b"")
    failed = read_frame(target)
    assert failed is not None
    assert failed[:2] == (Status.FAILED, 7)
    assert read_frame(target) is None


@pytest.mark.parametrize("num_bytes", [1, 7, 13, 14, 1000])
def test_frames_come_whole_however_the_pipe_parts_them(num_bytes: int) -> None:
    frames = [(Status.READY, 0, 0, b""), (Status.DONE, 1, 960, bytes(range(100))), (Status.FAILED, 70_000, 0, b"x")]
    stream = BytesIO()
    for frame in frames:
        write_frame(stream, *frame)
    data, reader = stream.getvalue(), FrameReader()
    got = [frame for at in range(0, len(data), num_bytes) for frame in reader.feed(data[at : at + num_bytes])]
    assert got == frames


@pytest.mark.parametrize("sizes", [[], [1], [80, 1275, 0, 3]])
def test_packets_survive_the_wire(sizes: list[int]) -> None:
    made = [bytes([size % 251]) * size for size in sizes]
    assert list(unpack_packets(pack_packets(made))) == made


def test_an_encoder_process_starts_without_the_models_libraries() -> None:
    imports = "import voicegate.engine.audio.encoder_process, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", imports], stdout=subprocess.PIPE, check=True)
    loaded = set(run.stdout.decode().split())
    assert "voicegate.engine.audio.packets" in loaded
    assert not loaded & {"torch", "triton", "onnxruntime", "tokenizers", "asyncio"}
