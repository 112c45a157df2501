"""Forms of audio beyond the native ones, which clients of other protocols ask for. Plain data; no encoder is here.

docs/compatibility.md says which client asks for which.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from voicegate.protocol.messages import Format

NATIVE_RATE_HZ: Final = 24_000
RATES_HZ: Final = (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
OPUS_BITRATE_BPS: Final = 32_000


class Coding(Enum):
    """The value is a file's usual suffix, or what says as much."""

    PCM_S16LE = "pcm_s16le"
    PCM_F32LE = "pcm_f32le"
    MULAW = "mulaw"  # G.711, one byte a sample
    ALAW = "alaw"
    OGG_OPUS = "ogg"
    MP3 = "mp3"
    AAC = "aac"  # in ADTS frames
    FLAC = "flac"


_CONTENT_TYPES: Final = {
    Coding.PCM_S16LE: "audio/pcm",
    Coding.PCM_F32LE: "audio/pcm",
    Coding.MULAW: "audio/basic",
    Coding.ALAW: "audio/x-alaw-basic",
    Coding.OGG_OPUS: "audio/ogg",
    Coding.MP3: "audio/mpeg",
    Coding.AAC: "audio/aac",
    Coding.FLAC: "audio/flac",
}


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """Mono always."""

    coding: Coding = Coding.PCM_S16LE
    rate_hz: int = NATIVE_RATE_HZ  # of Ogg Opus it says nothing: a decoder chooses its own
    bitrate_bps: int | None = None  # of Opus, MP3 and AAC; None: what is good enough for speech
    is_wav: bool = False  # raw samples behind a WAV header

    @property
    def native(self) -> Format:
        """The format that a session is asked for, to make this of."""
        if self.coding is Coding.OGG_OPUS:
            return Format(codec="opus", bitrate=self.bitrate_bps or OPUS_BITRATE_BPS)
        return Format(codec="pcm_s16le")

    @property
    def is_costly(self) -> bool:
        """It takes too much of a processor to be made on an event loop."""
        return self.coding in (Coding.MP3, Coding.AAC, Coding.FLAC)

    @property
    def content_type(self) -> str:
        return "audio/wav" if self.is_wav else _CONTENT_TYPES[self.coding]
