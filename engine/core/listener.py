"""One listener's audio left to play, as far as can be known: the deadline that urgency goes by. Pure.

It is taken to play from its first packet on, without a break. What its player reports corrects that, but only towards
having more left: none comes before others by saying that it has less.
"""

import math

from voicegate.engine.core import constants
from voicegate.engine.interface import ListenerReport


class Listener:
    """`deadline_s`: when it has an underrun; None before its first sound, infinite while its clock stands.

    The first sound after a rest that outlasted the audio is a first one, too.
    """

    def __init__(self) -> None:
        self.deadline_s: float | None = None
        self._underrun_s: float | None = None  # of the moment at which its clock last ran
        self._soonest_s = -math.inf  # the same for a player without a break
        self._num_underruns = 0  # by its latest report
        self._num_rests = 0  # each made its player run out of audio once, which is no underrun
        self._stands_since_s: float | None = None

    @property
    def held_s(self) -> float | None:
        """Audio in hand while its clock stands; None: it plays, or has nothing yet."""
        if self._underrun_s is None or self._stands_since_s is None:
            return None
        return self._underrun_s - self._stands_since_s

    def send(self, audio_s: float, now_s: float) -> None:
        """A listener who had an underrun resumes when audio comes: the deadline counts from then."""
        clock_s = now_s if self._stands_since_s is None else self._stands_since_s
        self._underrun_s = (clock_s if self._underrun_s is None else max(self._underrun_s, clock_s)) + audio_s
        self._soonest_s = max(self._soonest_s, now_s) + audio_s
        self._set_deadline()

    def wait_anew(self, now_s: float) -> None:
        """Its context comes back from rest. Where all was played, this is no gap amid speech: it is a new request
        again."""
        clock_s = now_s if self._stands_since_s is None else self._stands_since_s
        if self._underrun_s is not None and self._underrun_s <= clock_s:
            self._underrun_s = self.deadline_s = None
            self._num_rests += 1

    def note(self, report: ListenerReport, *, made_s: float, now_s: float) -> None:
        """`made_s`: audio so far. Its player has the rest in hand, or it is on its way there."""
        clock_s = now_s if self._stands_since_s is None else self._stands_since_s
        if self._underrun_s is not None:
            in_hand_s = max(self._underrun_s - clock_s, 0.0)
            if report.played_ms is not None:
                in_hand_s = max(made_s - report.played_ms / 1000, self._soonest_s - now_s, 0.0)
            self._underrun_s = now_s + in_hand_s
        self._stands_since_s = None if report.is_playing else now_s
        self._num_underruns = report.num_underruns
        self._set_deadline()

    def _set_deadline(self) -> None:
        if self._underrun_s is None:
            return
        num_underruns = max(self._num_underruns - self._num_rests, 0)
        reserve_s = min(num_underruns * constants.RESERVE_PER_UNDERRUN_S, constants.MAX_RESERVE_S)
        is_still = self._stands_since_s is not None
        self.deadline_s = math.inf if is_still else self._underrun_s - reserve_s
