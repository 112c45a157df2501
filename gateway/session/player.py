"""Judges reports of a client's player: which of them are news for the engine. Pure: time is an argument.

The engine takes a listener to play without a break from its first packet on; while that is so there is nothing to tell.
"""

from dataclasses import dataclass, field
from typing import Final

from voicegate.engine.interface import ListenerReport
from voicegate.protocol.messages import Playback

# How far a player may be from where it was said to be. Lower -> more reports wake the engine; higher -> a listener is
# served by so much too early or too late.
_DRIFT_S: Final = 0.1
# A player that has audio and has not moved for so long has paused. Lower -> players that report before they have played
# another packet are taken for paused; higher -> a pause is known later.
_PAUSED_AFTER_S: Final = 0.25


@dataclass(slots=True)
class Player:
    _told: ListenerReport = field(default_factory=ListenerReport)
    _told_start_s: float | None = None  # when it would have begun, had it played without a break
    _latest: Playback | None = None
    _moved_s: float = 0.0  # when it was first where it is
    _has_paused: bool = False
    _is_reachable: bool = True

    def report(self, playback: Playback, now_s: float) -> ListenerReport | None:
        """Notes a report. Returns how the player plays; None: no news."""
        if self._latest is None or playback.played_ms != self._latest.played_ms:
            self._moved_s = now_s
        self._has_paused = playback.buffer_ms > 0 and now_s - self._moved_s >= _PAUSED_AFTER_S
        self._latest = playback
        start_s = now_s - playback.played_ms / 1000
        report = ListenerReport(playback.played_ms, is_playing=self._is_playing, num_underruns=playback.underruns)
        has_drifted = self._told_start_s is None or abs(start_s - self._told_start_s) > _DRIFT_S
        is_same = report.is_playing == self._told.is_playing and report.num_underruns == self._told.num_underruns
        if is_same and not (report.is_playing and has_drifted):
            return None
        self._told, self._told_start_s = report, start_s
        return report

    def reach(self, is_reachable: bool) -> ListenerReport | None:
        """Whether its socket takes what is sent; None: no news."""
        self._is_reachable = is_reachable
        self._told_start_s = None  # to the engine it stood still meanwhile: where it is now is news
        if self._is_playing == self._told.is_playing:
            return None
        self._told = ListenerReport(None, is_playing=self._is_playing, num_underruns=self._told.num_underruns)
        return self._told

    @property
    def _is_playing(self) -> bool:
        return self._is_reachable and not self._has_paused
