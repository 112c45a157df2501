"""Encoders for clients of other protocols: one a stream, with its state, from a session's packets.

Pure, but compressing takes up to half a millisecond for 20 ms of audio, and some to begin: off the event loop with what
is costly (`OutputFormat.is_costly`). All others take a few hundredths, or nothing.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from voicegate.gateway.formats.compressed import AacEncoder, FlacEncoder, Mp3Encoder
from voicegate.gateway.formats.raw import FloatEncoder, NativeEncoder, PcmEncoder, alaw, mulaw, wav_header
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.formats import NATIVE_RATE_HZ, Coding, OutputFormat
from voicegate.protocol.ogg import OggOpusMuxer

# 20 ms. Without any frame these are no files; Ogg's is Opus's own frame of silence, of one channel.
_SILENT_PCM: Final = bytes(2 * NATIVE_RATE_HZ // 50)
_SILENCE: Final = {Coding.MP3: _SILENT_PCM, Coding.AAC: _SILENT_PCM, Coding.OGG_OPUS: b"\xf8\xff\xfe"}


class PcmStream(Protocol):
    """From 16-bit PCM at the native rate. What does not make a whole unit of the format yet waits."""

    def feed(self, pcm: bytes) -> bytes:
        """Feeds samples. Returns all that they complete; may be nothing."""

    def finish(self) -> bytes:
        """The rest. Nothing is fed after it."""


class StreamEncoder:
    """Takes packets of a context that was opened with `format.native`, in order; the header comes with the first.

    FFmpeg's encoders are made then too: they take milliseconds and megabytes, and many contexts never speak.
    """

    def __init__(self, output: OutputFormat, *, pre_skip_48k: int, is_file: bool = False) -> None:
        """`pre_skip_48k`: of the context's `opened`. `is_file`: what comes out is one, also where nothing is said."""
        self._output = output
        self._lacks_frame = is_file and output.coding in _SILENCE
        self._header = wav_header(output) if output.is_wav else b""
        self._muxer: OggOpusMuxer | None = None
        self._pcm: PcmStream | None = None
        if output.coding is Coding.OGG_OPUS:
            self._muxer = OggOpusMuxer(pre_skip_48k=pre_skip_48k)
            self._header = self._muxer.headers()

    def take(self, message: AudioMessage) -> bytes:
        return self.finish(message.pts_48k) if message.is_last else self.feed(message.packets)

    def feed(self, packets: Sequence[bytes]) -> bytes:
        self._lacks_frame = self._lacks_frame and not packets
        made = self._pcm_stream.feed(b"".join(packets)) if self._muxer is None else self._muxer.write(packets)
        return self._take_header() + made

    def finish(self, end_pts_48k: int) -> bytes:
        """The rest; `end_pts_48k`: of the context's last audio message."""
        silence = self.feed([_SILENCE[self._output.coding]]) if self._lacks_frame else b""
        made = self._pcm_stream.finish() if self._muxer is None else self._muxer.finish(end_pts_48k)
        return self._take_header() + silence + made

    @property
    def _pcm_stream(self) -> PcmStream:
        if self._pcm is None:
            self._pcm = create_pcm_stream(self._output)
        return self._pcm

    def _take_header(self) -> bytes:
        header, self._header = self._header, b""
        return header


def create_pcm_stream(output: OutputFormat) -> PcmStream:
    match output.coding:
        case Coding.PCM_S16LE if output.rate_hz == NATIVE_RATE_HZ:
            return NativeEncoder()
        case Coding.PCM_S16LE:
            return PcmEncoder(output.rate_hz)
        case Coding.PCM_F32LE:
            return FloatEncoder(output.rate_hz)
        case Coding.MULAW:
            return PcmEncoder(output.rate_hz, mulaw)
        case Coding.ALAW:
            return PcmEncoder(output.rate_hz, alaw)
        case Coding.MP3:
            return Mp3Encoder(output.rate_hz, output.bitrate_bps)
        case Coding.AAC:
            return AacEncoder(output.rate_hz, output.bitrate_bps)
        case Coding.FLAC:
            return FlacEncoder(output.rate_hz)
        case Coding.OGG_OPUS:
            raise ValueError("Ogg Opus is made of the engine's own packets")
