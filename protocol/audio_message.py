"""The binary audio message: a 12-byte header, then raw Opus packets or PCM. docs/protocol.md is normative."""

import struct

import msgspec

from voicegate.protocol.errors import ErrorCode, ProtocolViolation

VERSION = 1
FLAG_FIRST = 1
FLAG_LAST = 2
FLAG_DISCONTINUITY = 4

# version, flags, handle, sequence, pts: little endian
_HEADER = struct.Struct("<BBHII")
_LENGTH = struct.Struct("<H")


class AudioMessage(msgspec.Struct, frozen=True):
    """`packets` may be empty only in the last message, whose pts is then the exact end of the audio."""

    handle: int
    sequence: int  # counts messages of one context from 0 without gaps
    pts_48k: int  # of the first packet, in 48 kHz samples since the context's start
    packets: tuple[bytes, ...]
    is_first: bool = False
    is_last: bool = False
    is_discontinuity: bool = False


def pack(message: AudioMessage) -> bytes:
    flags = FLAG_FIRST * message.is_first | FLAG_LAST * message.is_last | FLAG_DISCONTINUITY * message.is_discontinuity
    parts = [_HEADER.pack(VERSION, flags, message.handle, message.sequence, message.pts_48k & 0xFFFFFFFF)]
    for packet in message.packets:
        parts.append(_LENGTH.pack(len(packet)))
        parts.append(packet)
    return b"".join(parts)


def unpack(raw: bytes) -> AudioMessage:
    """Raises ProtocolViolation for anything that `pack` cannot have written."""
    if len(raw) < _HEADER.size:
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"audio message of {len(raw)} bytes is shorter than its header")
    version, flags, handle, sequence, pts_48k = _HEADER.unpack_from(raw)
    if version != VERSION:
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"audio message version {version}, not {VERSION}")
    return AudioMessage(
        handle=handle,
        sequence=sequence,
        pts_48k=pts_48k,
        packets=_split_packets(raw, _HEADER.size),
        is_first=bool(flags & FLAG_FIRST),
        is_last=bool(flags & FLAG_LAST),
        is_discontinuity=bool(flags & FLAG_DISCONTINUITY),
    )


def _split_packets(raw: bytes, offset: int) -> tuple[bytes, ...]:
    packets: list[bytes] = []
    while offset < len(raw):
        if offset + _LENGTH.size > len(raw):
            raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "audio message ends inside a packet length")
        (length,) = _LENGTH.unpack_from(raw, offset)
        offset += _LENGTH.size
        if offset + length > len(raw):
            raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "audio message ends inside a packet")
        packets.append(raw[offset : offset + length])
        offset += length
    return tuple(packets)
