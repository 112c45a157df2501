"""Whether many share the device, and when listeners press by that. Pure."""

from dataclasses import replace
from typing import Final

from voicegate.engine.core.policy.urgency import Limits

# Utterances with work due at a time, from which on listeners have the whole guard of Limits, and below which again the
# light one.
_MANY_DUE: Final = 17
_FEW_DUE: Final = 9


class Crowd:
    """Of those who have work due. `limits` are the ones to go by."""

    def __init__(self, limits: Limits) -> None:
        is_same = limits.light_guard_s == limits.guard_s  # then nobody has to be looked at again
        self._among_few = limits if is_same else replace(limits, guard_s=limits.light_guard_s)
        self._among_many = limits
        self._are_many = False
        self.limits = self._among_few

    @property
    def are_many(self) -> bool:
        """As of the last `note`."""
        return self._are_many

    def note(self, num_due: int) -> bool:
        """Whether that makes it others."""
        self._are_many = self.would_be_many(num_due)
        before, self.limits = self.limits, self._among_many if self._are_many else self._among_few
        return self.limits is not before

    def would_be_many(self, num_due: int) -> bool:
        return num_due >= (_FEW_DUE if self._are_many else _MANY_DUE)
