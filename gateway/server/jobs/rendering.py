"""The audio of parts as one stream in the format that was asked for. Pure, and costly: for a thread."""

from collections.abc import Iterator, Sequence
from typing import Final

from voicegate.gateway.formats.encoder import StreamEncoder
from voicegate.gateway.server.jobs.files import PartFile
from voicegate.protocol.formats import OutputFormat

# Length of an Opus packet on its clock: 20 ms.
_PACKET_48K: Final = 960


def rendered(parts: Sequence[PartFile], output: OutputFormat, *, pre_skip_48k: int) -> Iterator[bytes]:
    """Parts follow each other without a gap; of Opus each begins with what its encoder needs to settle."""
    encoder = StreamEncoder(output, pre_skip_48k=pre_skip_48k, is_file=True)
    start_48k = end_48k = 0
    for part in parts:
        packets = part.packets()
        end_48k = start_48k + part.end_pts_48k
        start_48k += len(packets) * _PACKET_48K
        yield encoder.feed(packets)
    yield encoder.finish(end_48k)
