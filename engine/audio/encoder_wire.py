"""What an engine and its encoder processes say to each other: frames over a pair of pipes. Pure.

frame     length of the body (4 bytes), operation or status (1), utterance number (4), number of samples (4), body
to        OPEN: msgspec's JSON of Opening · ENCODE: float32 samples · FLUSH, FINISH, CLOSE: nothing
from      READY: nothing · DONE: each packet behind its length (2 bytes) · FAILED: what was wrong, UTF-8
"""

import struct
from enum import IntEnum
from typing import BinaryIO

_HEADER = struct.Struct("<IBII")
_LENGTH = struct.Struct("<H")


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


def write_frame(stream: BinaryIO, kind: int, number: int, num_samples: int, body: bytes) -> None:
    stream.write(_HEADER.pack(len(body), kind, number, num_samples))
    stream.write(body)
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[int, int, int, bytes] | None:
    """Kind, utterance number, number of samples, body; None at the end of the stream."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    length, kind, number, num_samples = _HEADER.unpack(header)
    body = stream.read(length)
    return None if len(body) < length else (kind, number, num_samples, body)


def pack_packets(packets: list[bytes]) -> bytes:
    return b"".join(part for packet in packets for part in (_LENGTH.pack(len(packet)), packet))


def unpack_packets(body: bytes) -> tuple[bytes, ...]:
    packets = []
    at = 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        packets.append(body[at : at + length])
        at += length
    return tuple(packets)
