"""Refusals: code, words and remedy where a session does not do what was asked, or can no longer. Pure."""

from dataclasses import replace
from typing import Final

from msgspec import UNSET

from voicegate.gateway.session.actions import Send
from voicegate.gateway.session.context import Context, ContextMessage, ContextState
from voicegate.gateway.session.opening import Refusal, SessionLimits
from voicegate.gateway.session.quota import Excess
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import ErrorCode

# Long enough for a client to find another server, short enough to try this one again after a restart.
DRAIN_RETRY_AFTER_MS: Final = 1_000
# Contexts of a full server end at the pace of conversations.
FULL_RETRY_AFTER_MS: Final = 2_000
GOING_AWAY: Final = "the server is going away"


def error_of(
    code: ErrorCode,
    message: str,
    context_id: str | None = None,
    *,
    fatal: bool = False,
    retry_after_ms: int | None = None,
) -> Send:
    return Send(
        wire.Error(
            code=code.value,
            message=message,
            fatal=fatal,
            context=UNSET if context_id is None else context_id,
            retry_after_ms=UNSET if retry_after_ms is None else retry_after_ms,
        )
    )


def refused(refusal: Refusal, context_id: str) -> Send:
    return error_of(refusal.code, refusal.message, context_id, fatal=True, retry_after_ms=refusal.retry_after_ms)


def unheard(refusal: Refusal) -> Refusal:
    """Refuses a context that has spoken before."""
    text = f"{refusal.message}; what this context said before stands: open another for the text that it did not say"
    return replace(refusal, message=text)


# --- of a context -----------------------------------------------------------------------------------------


def excess_of(excess: Excess) -> Refusal:
    if excess.is_of_owner:
        return Refusal(ErrorCode.TOO_MANY_CONTEXTS, str(excess))
    return Refusal(ErrorCode.OVERLOADED, str(excess), FULL_RETRY_AFTER_MS)


def illegal_in_state(message: ContextMessage, state: ContextState) -> Send:
    text = f"{message.__struct_config__.tag} is not possible while the context is {state.value}"
    return error_of(ErrorCode.ILLEGAL_IN_STATE, text, message.context)


def find_excess(context: Context, message: ContextMessage, limits: SessionLimits) -> Send | None:
    """The error for a message that is too long or one too many."""
    match message:
        case wire.Text(text=text):
            num_bytes = len(text.encode())
            if num_bytes > limits.text_bytes:
                reason = f"text of {num_bytes} bytes; a message takes {limits.text_bytes}: send it in parts"
                return error_of(ErrorCode.BAD_MESSAGE, reason, context.context_id)
            if context.num_text_bytes + num_bytes > limits.context_text_bytes:
                reason = f"a context takes {limits.context_text_bytes} bytes of text in all: open another"
                return error_of(ErrorCode.BAD_MESSAGE, reason, context.context_id)
        case wire.Flush() if context.num_unanswered_flushes >= limits.unanswered_flushes:
            reason = f"{limits.unanswered_flushes} flushes of this context are unanswered, which is the limit"
            return error_of(ErrorCode.RATE_LIMITED, reason, context.context_id)
    return None


def expired(context: Context, limits: SessionLimits, now_s: float) -> Send:
    if now_s >= context.opened_s + limits.context_life_s:
        text = f"this context has been open for {limits.context_life_s:g} s, which is the limit; open another"
    else:
        text = f"this context has been idle for {limits.context_idle_s:g} s, which is the limit; open it again"
    return error_of(ErrorCode.EXPIRED, text, context.context_id, fatal=True)


def going_away(context_id: str) -> Send:
    text = f"{GOING_AWAY}; open the context on another connection"
    return error_of(ErrorCode.OVERLOADED, text, context_id, fatal=True, retry_after_ms=DRAIN_RETRY_AFTER_MS)


# --- of a socket ------------------------------------------------------------------------------------------


def over_rate(limits: SessionLimits) -> Send:
    reason = f"over {limits.messages_per_s} messages a second, so they are read no faster; send fewer"
    return error_of(ErrorCode.RATE_LIMITED, reason)


def flooded(limits: SessionLimits) -> Send:
    return error_of(ErrorCode.RATE_LIMITED, f"over {limits.messages_per_s} messages a second for too long", fatal=True)


def revoked() -> Send:
    return error_of(ErrorCode.UNAUTHORIZED, "the key of this connection was taken back", fatal=True)
