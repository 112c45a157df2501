"""What other protocols' audio formats cost on one core: `python -m voicegate.bench.formats [--json FILE]`.

Time per 20 ms packet of 24 kHz PCM, fed one by one and by the second (what the engine makes of a block), and the
streams that one core would carry, of the latter, if it did nothing else. Ogg Opus is missing: it is the engine's own
packets behind page headers.
"""

import time
import wave
from pathlib import Path
from typing import Any, Final

from voicegate.bench import results_file
from voicegate.gateway.formats.encoder import StreamEncoder
from voicegate.protocol.formats import Coding, OutputFormat

_RECORDINGS: Final = sorted(Path("models/tiny/voices").glob("*_prompt.wav"))
_PACKET_BYTES: Final = 960
_PACKET_US: Final = 20_000
_PACKETS_OF_A_BLOCK: Final = 50
_ROUNDS: Final = 5
_FORMATS: Final = (
    OutputFormat(),
    OutputFormat(rate_hz=8_000),
    OutputFormat(rate_hz=16_000),
    OutputFormat(rate_hz=44_100),
    OutputFormat(Coding.PCM_F32LE),
    OutputFormat(Coding.MULAW, 8_000),
    OutputFormat(Coding.ALAW, 8_000),
    OutputFormat(Coding.FLAC),
    OutputFormat(Coding.MP3, 22_050, 32_000),
    OutputFormat(Coding.MP3, 44_100, 128_000),
    OutputFormat(Coding.MP3),
    OutputFormat(Coding.AAC),
)


def _us_per_packet(output: OutputFormat, packets: list[bytes], packets_a_time: int) -> float:
    seconds = []
    for _ in range(_ROUNDS):
        encoder = StreamEncoder(output, pre_skip_48k=0)
        started_s = time.thread_time()
        for start in range(0, len(packets), packets_a_time):
            encoder.feed(packets[start : start + packets_a_time])
        encoder.finish(0)
        seconds.append(time.thread_time() - started_s)
    return min(seconds) / len(packets) * 1e6


def _packets() -> list[bytes]:
    pcm = b""
    for path in _RECORDINGS:
        with wave.open(str(path)) as file:
            pcm += file.readframes(file.getnframes())
    return [pcm[at : at + _PACKET_BYTES] for at in range(0, len(pcm), _PACKET_BYTES)]


def measure() -> list[dict[str, Any]]:
    packets = _packets()
    rows = []
    for output in _FORMATS:
        one_by_one_us = _us_per_packet(output, packets, 1)
        in_blocks_us = _us_per_packet(output, packets, _PACKETS_OF_A_BLOCK)
        rows.append(
            {
                "coding": output.coding.value,
                "rate_hz": output.rate_hz,
                "bitrate_bps": output.bitrate_bps,
                "us_per_packet": round(one_by_one_us, 1),
                "us_per_packet_in_blocks": round(in_blocks_us, 1),
                "streams_per_core": round(_PACKET_US / in_blocks_us),
            }
        )
    return rows


if __name__ == "__main__":
    results_file.main_of_rows(__doc__, measure)
