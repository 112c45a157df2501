"""One libopus encoder (RFC 6716) through opuslib_next: mono float32 at the engine's rate in, raw packets out."""

import ctypes
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from voicegate.engine import units
from voicegate.engine.interface import Unsupported

MISSING_LIBOPUS: Final = (
    "libopus is not installed: `apt-get install libopus0` (Debian, Ubuntu), `dnf install opus` (Fedora), "
    "`brew install opus` (macOS)"
)

# In libopus's 0..10 at equal bitrate the highest without the music detector, whose analysis takes three quarters of the
# time of 7 and above and decides nothing for speech (docs/adr/0019). Higher -> several times the CPU time, no less
# noise; lower -> more of it.
_COMPLEXITY: Final = 5

# RFC 6716 section 3.4: the largest frame is 1275 bytes; a 60 ms packet holds three and their lengths.
_MAX_PACKET_BYTES: Final = 4000


def load_opuslib() -> Any:
    """The library's module. Raises Unsupported, with the remedy, where libopus is not to be found."""
    try:
        import opuslib_next  # noqa: PLC0415 - raises on import without libopus, which must not stop `voicegate doctor`
    except ModuleNotFoundError as error:
        raise Unsupported("opuslib-next is not installed: `pip install opuslib-next`") from error
    except Exception as error:  # it raises a bare Exception
        raise Unsupported(MISSING_LIBOPUS) from error
    return opuslib_next


class OpusEncoder:
    """libopus's AUDIO application, VBR. One thread at a time; libopus runs without Python's lock."""

    def __init__(self, *, bitrate_bps: int, complexity: int = _COMPLEXITY) -> None:
        opuslib = load_opuslib()
        self._opuslib = opuslib
        self._encoder = opuslib.Encoder(units.SAMPLE_RATE_HZ, 1, opuslib.APPLICATION_AUDIO)
        self._encoder.bitrate = bitrate_bps
        self._encoder.complexity = complexity
        self.lookahead_samples: int = int(self._encoder.lookahead)
        # The library's function under the wrapper, which copies the samples and makes a buffer for each packet.
        self._encode = opuslib.api.encoder.libopus_encode_float
        self._float_pointer = opuslib.api.c_float_pointer
        self._packet = ctypes.create_string_buffer(_MAX_PACKET_BYTES)

    def reset(self) -> None:
        """As new: the next packet is a stream's first."""
        self._encoder.reset_state()

    def encode(self, samples: npt.NDArray[np.float32]) -> bytes:
        """One packet from exactly 20, 40 or 60 ms of contiguous samples in [-1, 1]."""
        pointer = samples.ctypes.data_as(self._float_pointer)
        size = self._encode(self._encoder.encoder_state, pointer, len(samples), self._packet, _MAX_PACKET_BYTES)
        if size < 0:
            raise self._opuslib.OpusError(size)
        return ctypes.string_at(self._packet, size)
