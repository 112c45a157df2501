"""Messages between the bench and its worker processes: the plan of each visit, and the record of each turn.

Times of a plan are seconds since its start; those of a record are seconds of this machine's monotonic clock, which all
its processes share.
"""

import ssl
from enum import Enum
from pathlib import Path

from msgspec import Struct

from voicegate.clients.python.address import tls_for


class Piece(Struct, frozen=True):
    """Some text, and when it is sent after the turn's beginning."""

    text: str
    at_s: float


class Turn(Struct, frozen=True):
    """One utterance: what is written, and how long it is listened to."""

    pieces: tuple[Piece, ...]
    voice: str | None = None  # None: the server's
    mode: str = "auto"
    words_per_s: float | None = None  # of its writer; None: text given whole
    # Interrupted so long after its first audio; None: heard to its end.
    cancel_after_s: float | None = None
    pause_s: float = 0.0  # after its end, before the next turn of the visit
    is_hurried: bool = False  # audio is wanted as fast as it is made, not as it is heard

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def writing_s(self) -> float:
        return self.pieces[-1].at_s


class Reader(Enum):
    PROMPT = "prompt"
    SLOW = "slow"  # small buffers, and now and then it stops reading


class Visit(Struct, frozen=True):
    """One listener on a connection of its own: turns one after another."""

    due_s: float
    turns: tuple[Turn, ...]
    reader: Reader = Reader.PROMPT


class Target(Struct, frozen=True):
    """A server, and how it is spoken to."""

    url: str
    dialect: str = "native"
    codec: str = "opus"
    voice: str | None = None  # for dialects that name it where they connect
    headers: dict[str, str] = {}
    ca_file: str | None = None  # who signs its certificate; None: those whom the system trusts

    def tls_for(self, url: str) -> ssl.SSLContext | None:
        """Raises InvalidInput."""
        return tls_for(url, None if self.ca_file is None else Path(self.ca_file))


class Plan(Struct, frozen=True):
    """For one worker."""

    target: Target
    visits: tuple[Visit, ...]
    num_connections: int  # opened before it starts
    last_start_s: float  # no turn begins later
    stop_s: float  # what still runs then is cut off


class Outcome(Enum):
    DONE = "done"
    CANCELLED = "cancelled"  # by us, as planned
    REFUSED = "refused"  # the server had no room
    FAILED = "failed"
    CUT_OFF = "cut_off"  # it still ran when the scenario was over


class Record(Struct, frozen=True):
    """The record of a turn."""

    visit: int  # of the worker's plan; where workers' records are together, of the schedule
    turn: int
    outcome: Outcome
    due_s: float
    sent_s: float  # the first text
    ended_s: float
    num_letters: int
    words_per_s: float | None
    is_slow: bool
    arrivals: tuple[tuple[float, int], ...]  # when, and how many 48 kHz samples
    cancelled_s: float | None = None
    stopped_s: float | None = None  # the server told that it has; None: not interrupted, or never told
    last_audio_s: float | None = None  # that came after the interruption and was dropped; None: none did
    lag_s: float = 0.0  # of the latest piece behind its time: the client's own
    voice: str | None = None
    message: str = ""
    audible_48k: int | None = None  # samples before the first that can be heard; None: not measured, or all silent


class Began(Struct, frozen=True, tag="began"):
    """To the worker: the plan's start, on the monotonic clock."""

    start_s: float


class Stop(Struct, frozen=True, tag="stop"):
    """To the worker: all that is measured has been heard; what still runs is of no interest."""


Order = Began | Stop


class Ready(Struct, frozen=True, tag="ready"):
    """From the worker: its connections stand."""

    num_connections: int


class Told(Struct, frozen=True, tag="told"):
    """From the worker, as it happens."""

    record: Record


class Finished(Struct, frozen=True, tag="finished"):
    """From the worker, last: how late its own event loop was, and its CPU time."""

    loop_lag_p99_ms: float
    loop_lag_max_ms: float
    cpu_s: float
    num_late_connections: int
    connects_ms: tuple[float, ...] = ()  # each from dialling on until one may speak


class Broke(Struct, frozen=True, tag="broke"):
    """From the worker: it cannot go on."""

    message: str


Report = Ready | Told | Finished | Broke
