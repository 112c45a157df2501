"""Sessions whose clients may come back: who waits for whom, for how long, and with how much memory."""

import asyncio
import secrets
from collections.abc import Callable

from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.alarm import Alarm
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.sitting import Carrier, Sitting
from voicegate.gateway.server.conversations.translation import NativeTranslator
from voicegate.gateway.server.seldom import SeldomLog
from voicegate.gateway.session.continuity import CannotResume, Continuity, ResumeLimits
from voicegate.gateway.session.quota import Holding, Owner, Quotas
from voicegate.gateway.session.retention import Absences, Retention, Return
from voicegate.protocol.messages import Resume, Resumed

log = get_logger(__name__)


class Resumption:
    def __init__(
        self, limits: ResumeLimits, quotas: Quotas, on_return: Callable[[Return], None] = lambda _: None
    ) -> None:
        self._on_return = on_return
        self._limits = limits
        self._quotas = quotas
        self._sittings: dict[str, Sitting] = {}
        self._absences: Absences[Sitting] = Absences(limits.seconds)
        self._retention: Retention[Sitting] = Retention(limits.total_bytes)
        self._waiting = Alarm()
        self._is_over = not limits.seconds
        self._seldom = SeldomLog(log)

    @property
    def absent(self) -> list[Sitting]:
        """Those that wait for their clients."""
        return self._absences.all

    @property
    def num_kept_bytes(self) -> int:
        """Bytes kept for all sessions. From any thread."""
        return self._retention.num_kept_bytes

    def begin(self, converse: Callable[[str], Conversation]) -> Sitting:
        """A new one for a native client; `converse` is given its token."""
        if self._is_over:
            return Sitting(converse(""), NativeTranslator(None))
        continuity = Continuity(secrets.token_urlsafe(24), max_bytes=self._limits.session_bytes)
        translator = NativeTranslator(continuity, on_kept=lambda: self._note_kept(sitting))
        sitting = Sitting(converse(continuity.token), translator, continuity)
        self._sittings[sitting.session_id] = sitting
        return sitting

    def end(self, sitting: Sitting) -> None:
        """It is over, and so is all that it has to do. May be called again."""
        self._sittings.pop(sitting.session_id, None)
        if sitting in self._absences:
            self._end_absence(sitting)
        self._retention.forget(sitting)
        sitting.conversation.close()

    # --- going and coming ---------------------------------------------------------------------------------

    def may_wait_for(self, sitting: Sitting) -> bool:
        """Whether its client could come back if its socket were lost now."""
        continuity = sitting.continuity
        if continuity is None or self._is_over or sitting.conversation.is_ending:
            return False
        return continuity.is_wanted and (sitting.conversation.num_contexts > 0 or continuity.has_unacknowledged)

    def part(self, sitting: Sitting) -> None:
        """Its socket is lost: it waits for its client, if that may come back, or ends."""
        conversation = sitting.conversation
        if not self.may_wait_for(sitting):
            self.end(sitting)
            return
        excess = self._quotas.take(conversation.owner, Holding.ABSENT)
        if excess is not None:
            self._seldom.warning("a session does not wait for its client", reason=str(excess))
            self._on_return(Return.GIVEN_UP)
            self.end(sitting)
            return
        conversation.log.info("session waits for its client", contexts=conversation.num_contexts)
        sitting.carrier = None
        self._absences.begin(sitting, _now_s())
        conversation.lose_socket()
        conversation.on_backlog = lambda _num_bytes: self._note_kept(sitting)
        self._note_kept(sitting)
        self._watch()

    def resume(self, message: Resume, owner: Owner, carrier: Carrier) -> tuple[Sitting, Resumed]:
        """Raises CannotResume, and then nothing has changed."""
        try:
            sitting = self._find(message, owner)
        except CannotResume:
            self._on_return(Return.REFUSED)
            raise
        continuity, conversation = sitting.continuity, sitting.conversation
        assert continuity is not None, "those without are not listed"
        if sitting.carrier is not None:
            sitting.carrier.dismiss()
        elif sitting in self._absences:
            self._end_absence(sitting)
        sitting.carrier = carrier
        conversation.on_backlog = lambda _num_bytes: None
        conversation.move_to(owner)
        num_received = continuity.take_up(message.received)
        self._note_kept(sitting)
        self._on_return(Return.RESUMED)
        return sitting, Resumed(sitting.session_id, num_received)

    def _find(self, message: Resume, owner: Owner) -> Sitting:
        sitting = self._sittings.get(message.session)
        if sitting is None or sitting.conversation.is_ending:
            raise CannotResume(
                f"no session {message.session!r} waits here: it has ended, its {self._limits.seconds} s are over, or "
                "another server has it; open the contexts again"
            )
        assert sitting.continuity is not None, "those without are not listed"
        sitting.continuity.check(message.token, message.received)
        if _key_name(owner) != _key_name(sitting.conversation.owner):
            raise CannotResume("that session was begun with another key")
        return sitting

    def _end_absence(self, sitting: Sitting) -> None:
        self._absences.end(sitting)
        self._quotas.give_back(sitting.conversation.owner, Holding.ABSENT)
        self._watch()

    # --- limits -------------------------------------------------------------------------------------------

    def _note_kept(self, sitting: Sitting) -> None:
        if sitting.session_id not in self._sittings:
            return  # its last words are still being written
        assert sitting.continuity is not None
        num_bytes = sitting.continuity.num_kept_bytes
        if sitting.carrier is None:
            num_bytes += sitting.conversation.num_backlog_bytes
            if num_bytes > self._limits.session_bytes:
                self._give_up(sitting, "it has missed more than is kept for one")
                return
        largest = self._retention.note(sitting, num_bytes)
        if largest is not None:
            self._make_room(largest)

    def _make_room(self, largest: Sitting) -> None:
        assert largest.continuity is not None
        if largest.carrier is None or largest.continuity.is_owed_any:
            self._give_up(largest, "sessions keep more than they may all together")
        else:
            largest.continuity.forget()
            self._seldom.warning("a session could not be resumed now: all together keep more than they may")

    def _give_up(self, sitting: Sitting, reason: str) -> None:
        sitting.conversation.log.warning("session given up", reason=reason)
        self._on_return(Return.GIVEN_UP)
        sitting.conversation.give_up()
        if sitting.carrier is None:
            self.end(sitting)

    def _watch(self) -> None:
        self._waiting.set(self._absences.next_end_s, self._end_overdue)

    def _end_overdue(self) -> None:
        for sitting in self._absences.find_over(_now_s()):
            sitting.conversation.log.info("session's client did not come back")
            self._on_return(Return.EXPIRED)
            self.end(sitting)
        self._watch()

    # --- from the server ----------------------------------------------------------------------------------

    def close(self) -> None:
        """The server is going away, or its engine is gone: nobody can come back here."""
        self._is_over = True
        for sitting in self.absent:
            self.end(sitting)


def _key_name(owner: Owner) -> str | None:
    return None if owner.key is None else owner.key.name


def _now_s() -> float:
    return asyncio.get_running_loop().time()
