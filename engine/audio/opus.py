"""One libopus encoder (RFC 6716) through opuslib: mono float32 at the engine's rate in, raw packets out."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine import units
from engine.interface import Unsupported

MISSING_LIBOPUS: Final = (
    "libopus is not installed: `apt-get install libopus0` (Debian, Ubuntu), `dnf install opus` (Fedora), "
    "`brew install opus` (macOS)"
)


def load_opuslib() -> Any:
    """The opuslib module. Raises Unsupported, with the remedy, where libopus is not to be found."""
    try:
        import opuslib  # noqa: PLC0415 - raises on import without libopus, which must not stop `voicegate doctor`
    except Exception as error:  # opuslib raises a bare Exception
        raise Unsupported(MISSING_LIBOPUS) from error
    return opuslib


class OpusEncoder:
    """libopus's AUDIO application at its default complexity, VBR. Not thread-safe: libopus encoders are not."""

    def __init__(self, *, bitrate_bps: int) -> None:
        opuslib = load_opuslib()
        self._encoder = opuslib.Encoder(units.SAMPLE_RATE_HZ, 1, opuslib.APPLICATION_AUDIO)
        self._encoder.bitrate = bitrate_bps
        self.lookahead_samples: int = int(self._encoder.lookahead)

    def encode(self, samples: npt.NDArray[np.float32]) -> bytes:
        """One packet from exactly 20, 40 or 60 ms of samples in [-1, 1]."""
        packet: bytes = self._encoder.encode_float(samples.tobytes(), len(samples))
        return packet
