"""One device of several, and whether it hangs. Pure: it is told what the device got done, and time is an argument."""

import structlog

from voicegate.engine.pulse import PulseWatch

log = structlog.get_logger()


class WatchedDevice:
    def __init__(self, name: str, *, patience_s: float) -> None:
        self.name = name
        self.hangs = False
        self.num_hangs = 0  # so far
        self.num_utterances_lost = 0
        self._patience_s = patience_s
        self._watch = PulseWatch(patience_s)

    def look(self, pulse: int | None, now_s: float) -> bool:
        """Several times a second; True: since now it hangs. `pulse` as PulseWatch has it."""
        hung, self.hangs = self.hangs, self._watch.look(pulse, now_s)
        if self.hangs and not hung:
            self.num_hangs += 1
            log.error("device_hangs", device=self.name, limit_s=self._patience_s)
        elif hung and not self.hangs:
            log.warning("device_goes_on", device=self.name)
        return self.hangs and not hung
