"""The table that tells a call's kernels about its streams: one row of int64 numbers a stream, copied once a call."""

from typing import Final, NamedTuple


class Row(NamedTuple):
    """The order of the fields is the kernels' (the *_FIELD constants below)."""

    slot: int
    num_frames: int  # mel frames to advance by; 0: nothing but the lookahead changes
    is_first: int  # no frame of this stream was advanced by before: its slot's tails are not read
    is_final: int
    start_frame: int  # advanced by so far
    num_lookahead: int  # frames in the slot that are known but not advanced by
    num_new: int  # frames at `mel_address`
    mel_address: int  # of the first new frame's first band, float32 on the device
    band_stride: int  # in numbers
    frame_stride: int


SLOT_FIELD: Final = 0
FRAMES_FIELD: Final = 1
FIRST_FIELD: Final = 2
FINAL_FIELD: Final = 3
START_FIELD: Final = 4
LOOKAHEAD_FIELD: Final = 5
NEW_FIELD: Final = 6
ADDRESS_FIELD: Final = 7
BAND_STRIDE_FIELD: Final = 8
FRAME_STRIDE_FIELD: Final = 9
NUM_FIELDS: Final = len(Row._fields)


def idle_row(slot: int) -> Row:
    """Fills a call up to its bucket: advances by nothing; `slot` is one that no stream has."""
    return Row(slot, 0, 1, 0, 0, 0, 0, 0, 0, 0)


def busy_row(slot: int, num_frames: int) -> Row:
    """Advances by so many frames, all of them silence, in the middle of a stream."""
    return Row(slot, num_frames, 0, 0, 0, 0, 0, 0, 0, 0)
