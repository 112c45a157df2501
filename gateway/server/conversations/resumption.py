"""Sessions whose clients may come back: who waits for whom, for how long, and with how much memory."""

import asyncio
import secrets
from collections.abc import Callable

from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.alarm import Alarm
from voicegate.gateway.server.conversations.binding import Binding, Carrier
from voicegate.gateway.server.conversations.conversation import Conversation
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
        self._bindings: dict[str, Binding] = {}
        self._absences: Absences[Binding] = Absences(limits.seconds)
        self._retention: Retention[Binding] = Retention(limits.total_bytes)
        self._waiting = Alarm()
        self._is_over = not limits.seconds
        self._seldom = SeldomLog(log)

    @property
    def absent(self) -> list[Binding]:
        """Those that wait for their clients."""
        return self._absences.all

    @property
    def num_kept_bytes(self) -> int:
        """Bytes kept for all sessions. From any thread."""
        return self._retention.num_kept_bytes

    def begin(self, converse: Callable[[str], Conversation]) -> Binding:
        """A new one for a native client; `converse` is given its token."""
        if self._is_over:
            return Binding(converse(""), NativeTranslator(None))
        continuity = Continuity(secrets.token_urlsafe(24), max_bytes=self._limits.session_bytes)
        translator = NativeTranslator(continuity, on_kept=lambda: self._note_kept(binding))
        binding = Binding(converse(continuity.token), translator, continuity)
        self._bindings[binding.session_id] = binding
        return binding

    def end(self, binding: Binding) -> None:
        """It is over, and so is all that it has to do. May be called again."""
        self._bindings.pop(binding.session_id, None)
        if binding in self._absences:
            self._end_absence(binding)
        self._retention.forget(binding)
        binding.conversation.close()

    # --- going and coming ---------------------------------------------------------------------------------

    def may_wait_for(self, binding: Binding) -> bool:
        """Whether its client could come back if its socket were lost now."""
        continuity = binding.continuity
        if continuity is None or self._is_over or binding.conversation.is_ending:
            return False
        return continuity.is_wanted and (binding.conversation.num_contexts > 0 or continuity.has_unacknowledged)

    def part(self, binding: Binding) -> None:
        """Its socket is lost: it waits for its client, if that may come back, or ends."""
        conversation = binding.conversation
        if not self.may_wait_for(binding):
            self.end(binding)
            return
        excess = self._quotas.take(conversation.owner, Holding.ABSENT)
        if excess is not None:
            self._seldom.warning("a session does not wait for its client", reason=str(excess))
            self._on_return(Return.GIVEN_UP)
            self.end(binding)
            return
        conversation.log.info("session waits for its client", contexts=conversation.num_contexts)
        binding.carrier = None
        self._absences.begin(binding, _now_s())
        conversation.lose_socket()
        conversation.on_backlog = lambda _num_bytes: self._note_kept(binding)
        self._note_kept(binding)
        self._watch()

    def resume(self, message: Resume, owner: Owner, carrier: Carrier) -> tuple[Binding, Resumed]:
        """Raises CannotResume, and then nothing has changed."""
        try:
            binding = self._find(message, owner)
        except CannotResume:
            self._on_return(Return.REFUSED)
            raise
        continuity, conversation = binding.continuity, binding.conversation
        assert continuity is not None, "those without are not listed"
        if binding.carrier is not None:
            binding.carrier.dismiss()
        elif binding in self._absences:
            self._end_absence(binding)
        binding.carrier = carrier
        conversation.on_backlog = lambda _num_bytes: None
        conversation.move_to(owner)
        num_received = continuity.take_up(message.received)
        self._note_kept(binding)
        self._on_return(Return.RESUMED)
        return binding, Resumed(binding.session_id, num_received)

    def _find(self, message: Resume, owner: Owner) -> Binding:
        binding = self._bindings.get(message.session)
        if binding is None or binding.conversation.is_ending:
            raise CannotResume(
                f"no session {message.session!r} waits here: it has ended, its {self._limits.seconds} s are over, or "
                "another server has it; open the contexts again"
            )
        assert binding.continuity is not None, "those without are not listed"
        binding.continuity.check(message.token, message.received)
        if _key_name(owner) != _key_name(binding.conversation.owner):
            raise CannotResume("that session was begun with another key")
        return binding

    def _end_absence(self, binding: Binding) -> None:
        self._absences.end(binding)
        self._quotas.give_back(binding.conversation.owner, Holding.ABSENT)
        self._watch()

    # --- limits -------------------------------------------------------------------------------------------

    def _note_kept(self, binding: Binding) -> None:
        if binding.session_id not in self._bindings:
            return  # its last words are still being written
        assert binding.continuity is not None
        num_bytes = binding.continuity.num_kept_bytes
        if binding.carrier is None:
            num_bytes += binding.conversation.num_backlog_bytes
            if num_bytes > self._limits.session_bytes:
                self._give_up(binding, "it has missed more than is kept for one")
                return
        largest = self._retention.note(binding, num_bytes)
        if largest is not None:
            self._make_room(largest)

    def _make_room(self, largest: Binding) -> None:
        assert largest.continuity is not None
        if largest.carrier is None or largest.continuity.is_owed_any:
            self._give_up(largest, "sessions keep more than they may all together")
        else:
            largest.continuity.forget()
            self._seldom.warning("a session could not be resumed now: all together keep more than they may")

    def _give_up(self, binding: Binding, reason: str) -> None:
        binding.conversation.log.warning("session given up", reason=reason)
        self._on_return(Return.GIVEN_UP)
        binding.conversation.give_up()
        if binding.carrier is None:
            self.end(binding)

    def _watch(self) -> None:
        self._waiting.set(self._absences.next_end_s, self._end_overdue)

    def _end_overdue(self) -> None:
        for binding in self._absences.find_over(_now_s()):
            binding.conversation.log.info("session's client did not come back")
            self._on_return(Return.EXPIRED)
            self.end(binding)
        self._watch()

    # --- from the server ----------------------------------------------------------------------------------

    def close(self) -> None:
        """The server is going away, or its engine is gone: no one can come back here."""
        self._is_over = True
        for binding in self.absent:
            self.end(binding)


def _key_name(owner: Owner) -> str | None:
    return None if owner.key is None else owner.key.name


def _now_s() -> float:
    return asyncio.get_running_loop().time()
