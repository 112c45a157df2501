"""Messages of a maker process: one each way, msgpack after its length. No torch."""

import struct
from typing import BinaryIO, Final

import msgspec

from voicegate.engine.interface import NewVoice

_LENGTH: Final = struct.Struct("<Q")


class Task(msgspec.Struct, frozen=True):
    model_dir: str
    num_threads: int  # of torch: sums are rounded by how they are shared out
    voice: NewVoice


class Made(msgspec.Struct, frozen=True, tag=True):
    voice: bytes  # as making.py packs it


class NotMade(msgspec.Struct, frozen=True, tag=True):
    error: str  # the class of an EngineError
    message: str


Answer = Made | NotMade


def write_message(target: BinaryIO, message: msgspec.Struct) -> None:
    body = msgspec.msgpack.encode(message)
    target.write(_LENGTH.pack(len(body)) + body)
    target.flush()


def read_message(source: BinaryIO) -> bytes | None:
    """None: it has ended before."""
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (num_bytes,) = _LENGTH.unpack(head)
    body = source.read(num_bytes)
    return body if len(body) == num_bytes else None
