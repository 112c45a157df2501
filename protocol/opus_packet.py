"""Reads the first bytes of a raw Opus packet without decoding it (RFC 6716 section 3). Pure."""

from typing import Final

# Length of one frame in 48 kHz samples by configuration number: RFC 6716 section 3.1, table 2.
_SILK: Final = (480, 960, 1920, 2880)
_HYBRID: Final = (480, 960)
_CELT: Final = (120, 240, 480, 960)
_FRAME_48K: Final = (*_SILK * 3, *_HYBRID * 2, *_CELT * 4)
_MAX_PACKET_48K: Final = 5760  # 120 ms


def packet_duration_48k(packet: bytes) -> int:
    """Duration in 48 kHz samples. Raises ValueError for bytes that are no Opus packet."""
    if not packet:
        raise ValueError("an Opus packet has at least one byte")
    toc = packet[0]
    match toc & 0b11:
        case 0:
            num_frames = 1
        case 3:
            if len(packet) < 2:
                raise ValueError("an Opus packet of code 3 has at least two bytes")
            num_frames = packet[1] & 0b111111
        case _:
            num_frames = 2
    duration_48k = _FRAME_48K[toc >> 3] * num_frames
    if not 0 < duration_48k <= _MAX_PACKET_48K:
        raise ValueError(f"an Opus packet lasts up to 120 ms, not {duration_48k / 48:g} ms")
    return duration_48k
