"""Ogg Opus (RFC 3533, RFC 7845): raw Opus packets -> the bytes of a file or HTTP body, page by page. Pure.

One page per call of `write`, so that a listener gets what there is; the last page's granule position carries the
exact end of the audio. It must not know contexts, sockets or libopus.
"""

import struct
from collections.abc import Sequence
from typing import Final

from voicegate.protocol.opus_packet import packet_duration_48k

_VERSION: Final = 0
_BEGINNING_OF_STREAM: Final = 0x02
_END_OF_STREAM: Final = 0x04
# capture pattern, version, flags, granule position, serial number, page number, checksum, segments
_PAGE_HEADER: Final = struct.Struct("<4sBBqIIIB")
_CHECKSUM_OFFSET: Final = 22
# RFC 7845 section 5.1: magic, version, channels, pre-skip, input rate, output gain, mapping family
_OPUS_HEAD: Final = struct.Struct("<8sBBHIhB")
_MAX_SEGMENTS: Final = 255
_SEGMENT_BYTES: Final = 255
_POLYNOMIAL: Final = 0x04C11DB7


class OggOpusMuxer:
    """One logical stream. The newest packet waits for its successor, because only the last page may trim."""

    def __init__(
        self,
        *,
        pre_skip_48k: int,
        serial: int = 1,
        input_rate_hz: int = 24_000,
        channels: int = 1,
        comments: Sequence[str] = (),
    ) -> None:
        self._pre_skip_48k = pre_skip_48k
        self._serial = serial
        self._input_rate_hz = input_rate_hz
        self._channels = channels
        self._comments = tuple(comments)
        self._num_pages = 0
        self._granule_48k = 0  # of the pages written: all samples of their packets, pre-skip included
        self._waiting: tuple[bytes, ...] = ()  # at most one packet
        self._is_finished = False

    def headers(self) -> bytes:
        """The two header pages; to be written first, once."""
        head = _OPUS_HEAD.pack(b"OpusHead", 1, self._channels, self._pre_skip_48k, self._input_rate_hz, 0, 0)
        return self._page((head,), _BEGINNING_OF_STREAM, 0) + self._page((_opus_tags(self._comments),), 0, 0)

    def write(self, packets: Sequence[bytes]) -> bytes:
        """The pages that these packets complete; none for a single packet at the start."""
        ready = (*self._waiting, *packets)
        self._waiting = ready[-1:]
        return b"".join(map(self._audio_page, _groups_for_pages(ready[:-1])))

    def finish(self, end_pts_48k: int | None = None) -> bytes:
        """The last page. `end_pts_48k`: exact end, counted as pts are, with the pre-skip; None: no trimming.

        Raises ValueError for an end beyond the audio, or so far back that more than the last packet goes.
        """
        if self._is_finished:
            raise ValueError("the stream is finished already")
        untrimmed_48k = self._granule_48k + sum(map(packet_duration_48k, self._waiting))
        end_48k = untrimmed_48k if end_pts_48k is None else end_pts_48k
        if not self._granule_48k <= end_48k <= untrimmed_48k:
            raise ValueError(f"end {end_48k} is not within the last packet, {self._granule_48k}..{untrimmed_48k}")
        self._is_finished = True
        waiting, self._waiting = self._waiting, ()
        return self._page(waiting, _END_OF_STREAM, end_48k)

    def _audio_page(self, packets: Sequence[bytes]) -> bytes:
        self._granule_48k += sum(map(packet_duration_48k, packets))
        return self._page(packets, 0, self._granule_48k)

    def _page(self, packets: Sequence[bytes], flags: int, granule: int) -> bytes:
        lacing = b"".join(map(_lacing, packets))
        number, self._num_pages = self._num_pages, self._num_pages + 1
        header = _PAGE_HEADER.pack(b"OggS", _VERSION, flags, granule, self._serial, number, 0, len(lacing))
        page = bytearray(header + lacing + b"".join(packets))
        struct.pack_into("<I", page, _CHECKSUM_OFFSET, checksum(page))
        return bytes(page)


def mux(packets: Sequence[bytes], *, pre_skip_48k: int, end_pts_48k: int | None = None) -> bytes:
    """A whole file at once, a page per second of 20 ms packets."""
    muxer = OggOpusMuxer(pre_skip_48k=pre_skip_48k)
    pages = [muxer.headers()]
    pages += [muxer.write(packets[start : start + 50]) for start in range(0, len(packets), 50)]
    return b"".join([*pages, muxer.finish(end_pts_48k)])


def checksum(page: bytes | bytearray) -> int:
    """CRC-32 of RFC 3533 section 6: polynomial 0x04c11db7, not reflected, from zero, no final inversion."""
    crc = 0
    for byte in page:
        crc = (crc << 8 & 0xFFFFFFFF) ^ _CRC_TABLE[crc >> 24 ^ byte]
    return crc


def _crc_of_byte(byte: int) -> int:
    crc = byte << 24
    for _ in range(8):
        crc = crc << 1 ^ (_POLYNOMIAL if crc & 0x80000000 else 0)
    return crc & 0xFFFFFFFF


_CRC_TABLE: Final = tuple(_crc_of_byte(byte) for byte in range(256))


def _opus_tags(comments: Sequence[str]) -> bytes:
    texts = [b"voicegate", *(comment.encode() for comment in comments)]
    vendor, *user = (struct.pack("<I", len(text)) + text for text in texts)
    return b"OpusTags" + vendor + struct.pack("<I", len(user)) + b"".join(user)


def _lacing(packet: bytes) -> bytes:
    """Segment sizes of one packet; the one below 255 ends it (RFC 3533 section 5)."""
    full, rest = divmod(len(packet), _SEGMENT_BYTES)
    if full >= _MAX_SEGMENTS:
        raise ValueError(f"packet of {len(packet)} bytes does not fit into one Ogg page")
    return bytes([_SEGMENT_BYTES] * full + [rest])


def _groups_for_pages(packets: Sequence[bytes]) -> list[list[bytes]]:
    """As many packets to a page as its 255 segments hold; no packet spans two pages."""
    groups: list[list[bytes]] = []
    num_segments = _MAX_SEGMENTS
    for packet in packets:
        needed = len(packet) // _SEGMENT_BYTES + 1
        if num_segments + needed > _MAX_SEGMENTS:
            groups.append([])
            num_segments = 0
        groups[-1].append(packet)
        num_segments += needed
    return groups
