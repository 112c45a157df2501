"""Messages between an engine and its encoder processes: frames over a pair of pipes. Pure.

frame     length of the body (4 bytes), operation or status (1), utterance number (4), number of samples (4), body
to        OPEN: msgspec's JSON of AudioFormat · ENCODE: float32 samples · FLUSH, FINISH, CLOSE: nothing
from      READY: nothing · DONE: number of packets (2 bytes), length of each (2), packets · FAILED: reason, UTF-8
"""

import struct
from enum import IntEnum
from typing import BinaryIO

_HEADER = struct.Struct("<IBII")
_COUNT = struct.Struct("<H")

Frame = tuple[int, int, int, bytes]  # operation or status, utterance number, number of samples, body


class Operation(IntEnum):
    OPEN = 0
    ENCODE = 1
    FLUSH = 2
    FINISH = 3
    CLOSE = 4


class Status(IntEnum):
    READY = 0
    DONE = 1
    FAILED = 2


def pack_header(kind: int, number: int, num_samples: int, num_bytes: int) -> bytes:
    """The header of a body of `num_bytes`."""
    return _HEADER.pack(num_bytes, kind, number, num_samples)


def write_frame(stream: BinaryIO, kind: int, number: int, num_samples: int, body: bytes) -> None:
    stream.write(pack_header(kind, number, num_samples, len(body)) + body)  # in one call, which wakes its reader once
    stream.flush()


def read_frame(stream: BinaryIO) -> Frame | None:
    """None at the end of the stream."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    length, kind, number, num_samples = _HEADER.unpack(header)
    body = stream.read(length)
    return None if len(body) < length else (kind, number, num_samples, body)


class FrameReader:
    """Makes frames of bytes as they come."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        data = self._begun + data
        frames: list[Frame] = []
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, number, num_samples = _HEADER.unpack_from(data, at)
            end = at + _HEADER.size + length
            if end > len(data):
                break
            frames.append((kind, number, num_samples, data[at + _HEADER.size : end]))
            at = end
        self._begun = data[at:]
        return frames


def pack_packets(packets: list[bytes]) -> bytes:
    lengths = [len(packet) for packet in packets]
    return b"".join((struct.pack(f"<H{len(packets)}H", len(packets), *lengths), *packets))


def unpack_packets(body: bytes) -> tuple[bytes, ...]:
    (num_packets,) = _COUNT.unpack_from(body)
    at = _COUNT.size * (1 + num_packets)
    packets = []
    for length in struct.unpack_from(f"<{num_packets}H", body, _COUNT.size):
        packets.append(body[at : at + length])
        at += length
    return tuple(packets)
