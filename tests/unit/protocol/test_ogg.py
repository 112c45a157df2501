"""Ogg Opus pages: what PyAV's demuxer and decoder make of them equals libopus on the same packets."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import av
import numpy as np
import numpy.typing as npt
import opuslib_next
import pytest

from voicegate.protocol import ogg
from voicegate.protocol.ogg import OggOpusMuxer
from voicegate.protocol.opus_packet import packet_duration_48k

Samples = npt.NDArray[np.int16]
RATE_HZ = 48_000


@dataclass(frozen=True)
class Encoded:
    packets: list[bytes]
    pre_skip_48k: int
    end_pts_48k: int


def encode(num_samples: int, *, frame_ms: int = 20) -> Encoded:
    """Chirp at 48 kHz, padded so that the decoder's delayed output holds every sample."""
    encoder = opuslib_next.Encoder(RATE_HZ, 1, opuslib_next.APPLICATION_AUDIO)
    pre_skip = int(encoder.lookahead)
    time_s = np.arange(num_samples) / RATE_HZ
    samples = (8000 * np.sin(2 * np.pi * (200 + 300 * time_s) * time_s)).astype(np.int16)
    frame = RATE_HZ * frame_ms // 1000
    total = num_samples + pre_skip
    padded = np.zeros(total + -total % frame, np.int16)
    padded[:num_samples] = samples
    packets = [encoder.encode(padded[i : i + frame].tobytes(), frame) for i in range(0, len(padded), frame)]
    return Encoded(packets, pre_skip, pre_skip + num_samples)


def decode_with_libopus(encoded: Encoded) -> Samples:
    decoder = opuslib_next.Decoder(RATE_HZ, 1)
    pcm = b"".join(decoder.decode(packet, 5760) for packet in encoded.packets)
    return np.frombuffer(pcm, np.int16)[encoded.pre_skip_48k : encoded.end_pts_48k]


def decode_with_av(file: bytes) -> Samples:
    """libopus behind FFmpeg's Ogg demuxer, which applies pre-skip and end trimming.

    FFmpeg's own Opus decoder, its default, is not bit-exact where the codec changes its mode.
    """
    with av.open(io.BytesIO(file), "r") as container:
        stream = container.streams.audio[0]
        decoder = av.AudioCodecContext.create("libopus", "r")
        decoder.extradata = stream.codec_context.extradata
        frames = [frame for packet in container.demux(stream) for frame in decoder.decode(packet)]
        assert frames[0].format.name == "s16"
        return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames])


@dataclass(frozen=True)
class Page:
    flags: int
    granule: int
    number: int
    packets: list[bytes]


def read_pages(file: bytes) -> Iterator[Page]:
    """A second reading of RFC 3533, for pages in which no packet is continued."""
    position = 0
    while position < len(file):
        magic, _, flags, granule, _, number, crc, num_segments = ogg._PAGE_HEADER.unpack_from(file, position)
        assert magic == b"OggS"
        start = position + ogg._PAGE_HEADER.size
        sizes = file[start : start + num_segments]
        body = start + num_segments
        page = bytearray(file[position : body + sum(sizes)])
        page[22:26] = bytes(4)
        assert ogg.checksum(page) == crc
        packets, length = [], 0
        for size in sizes:
            length += size
            if size < 255:
                packets.append(file[body : body + length])
                body, length = body + length, 0
        assert length == 0, "a packet goes on in the next page"
        yield Page(flags, granule, number, packets)
        position += len(page)


def mux_in_groups(encoded: Encoded, sizes: Sequence[int]) -> bytes:
    muxer = OggOpusMuxer(pre_skip_48k=encoded.pre_skip_48k)
    pages, position = [muxer.headers()], 0
    for size in sizes:
        pages.append(muxer.write(encoded.packets[position : position + size]))
        position += size
    pages.append(muxer.write(encoded.packets[position:]))
    return b"".join([*pages, muxer.finish(encoded.end_pts_48k)])


@pytest.mark.parametrize("frame_ms", [20, 40, 60])
@pytest.mark.parametrize("num_samples", [960, 961, 48_000, 48_001, 100_003])
def test_av_decodes_what_libopus_does(frame_ms: int, num_samples: int) -> None:
    encoded = encode(num_samples, frame_ms=frame_ms)
    file = ogg.mux(encoded.packets, pre_skip_48k=encoded.pre_skip_48k, end_pts_48k=encoded.end_pts_48k)
    decoded, expected = decode_with_av(file), decode_with_libopus(encoded)
    assert len(decoded) == len(expected) == num_samples
    assert np.abs(decoded.astype(int) - expected).max() <= 2  # two builds of libopus round differently


@pytest.mark.parametrize("sizes", [(1,) * 20, (2, 0, 3), (49, 1), (0,), (7, 11, 13)])
def test_groups_change_pages_but_never_packets_or_length(sizes: tuple[int, ...]) -> None:
    encoded = encode(50_000)
    file = mux_in_groups(encoded, sizes)
    pages = list(read_pages(file))
    assert [page.number for page in pages] == list(range(len(pages)))
    assert [packet for page in pages[2:] for packet in page.packets] == encoded.packets
    assert len(decode_with_av(file)) == 50_000


def test_granules_count_all_samples_and_the_last_page_trims() -> None:
    encoded = encode(2_500)  # 960 per packet, 312 of pre-skip: 3 packets
    pages = list(read_pages(mux_in_groups(encoded, (1, 1))))
    assert [page.flags for page in pages] == [2, 0, 0, 0, 4]
    assert [page.granule for page in pages] == [0, 0, 960, 1920, encoded.end_pts_48k]


def test_headers_are_alone_on_their_pages() -> None:
    muxer = OggOpusMuxer(pre_skip_48k=312, serial=7, comments=("TITLE=grüß",))
    head, tags = read_pages(muxer.headers())
    assert head.packets == [
        b"OpusHead\x01\x01" + (312).to_bytes(2, "little") + (24_000).to_bytes(4, "little") + bytes(3)
    ]
    title = "TITLE=grüß".encode()
    assert tags.packets == [
        b"OpusTags" + b"\x09\0\0\0voicegate" + b"\x01\0\0\0" + len(title).to_bytes(4, "little") + title
    ]


def test_one_packet_waits_for_its_successor() -> None:
    packets = encode(3_000).packets
    muxer = OggOpusMuxer(pre_skip_48k=312)
    assert muxer.write(packets[:1]) == b""
    assert [page.packets for page in read_pages(muxer.write(packets[1:3]))] == [packets[:2]]


def test_many_or_long_packets_take_several_pages() -> None:
    long = bytes([0xFB, 2]) + bytes(1_000)  # 20 ms CELT, code 3, two frames
    muxer = OggOpusMuxer(pre_skip_48k=0)
    pages = list(read_pages(muxer.write([long] * 200) + muxer.finish()))
    assert [len(page.packets) for page in pages] == [63, 63, 63, 10, 1]
    assert pages[-1].granule == 200 * 1920


def test_packet_of_a_multiple_of_255_bytes_is_closed_by_an_empty_segment() -> None:
    packet = bytes([0xF8]) + bytes(509)
    muxer = OggOpusMuxer(pre_skip_48k=0)
    (page,) = read_pages(muxer.write([packet]) + muxer.finish())
    assert page.packets == [packet]


def test_empty_stream_has_headers_and_an_end() -> None:
    muxer = OggOpusMuxer(pre_skip_48k=312)
    pages = list(read_pages(muxer.headers() + muxer.finish()))
    assert [(page.flags, page.granule, len(page.packets)) for page in pages] == [(2, 0, 1), (0, 0, 1), (4, 0, 0)]


@pytest.mark.parametrize("end_pts_48k", [-1, 959, 1921, 10_000])
def test_an_end_outside_the_last_packet_is_refused(end_pts_48k: int) -> None:
    muxer = OggOpusMuxer(pre_skip_48k=312)
    muxer.write(encode(1_000).packets)
    with pytest.raises(ValueError, match="not within the last packet"):
        muxer.finish(end_pts_48k)


def test_finish_twice_is_refused() -> None:
    muxer = OggOpusMuxer(pre_skip_48k=312)
    muxer.finish()
    with pytest.raises(ValueError, match="finished already"):
        muxer.finish()


def test_packet_too_long_for_a_page_is_refused() -> None:
    muxer = OggOpusMuxer(pre_skip_48k=312)
    with pytest.raises(ValueError, match="does not fit"):
        muxer.write([bytes([0xF8]) + bytes(255 * 255), b"\xf8"])


def test_checksum_of_a_known_page() -> None:
    # The polynomial's own bit pattern: one bit in gives the polynomial out.
    assert ogg.checksum(b"\x01") == 0x04C11DB7
    assert ogg.checksum(b"123456789") == 0x89A1897F  # CRC-32/MPEG-2's check value without its initial ones


@pytest.mark.parametrize("frame_ms", [2.5, 5, 10, 20, 40, 60])
@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 48_000])
def test_duration_is_read_from_the_packet(frame_ms: float, rate_hz: int) -> None:
    for application in (opuslib_next.APPLICATION_AUDIO, opuslib_next.APPLICATION_VOIP):
        frame = int(rate_hz * frame_ms / 1000)
        packet = opuslib_next.Encoder(rate_hz, 1, application).encode(bytes(2 * frame), frame)
        assert packet_duration_48k(packet) == frame_ms * 48


@pytest.mark.parametrize("packet", [b"", b"\xfb", b"\xfb\x00", b"\xfb\x3f"])
def test_what_is_no_opus_packet_is_refused(packet: bytes) -> None:
    with pytest.raises(ValueError, match="Opus packet"):
        packet_duration_48k(packet)
