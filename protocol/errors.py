"""Error codes and close codes of the wire, and the one exception that bad input raises.

ProtocolViolation   the peer sent something that this protocol does not allow; carries an ErrorCode
"""

from enum import Enum, IntEnum
from typing import Final


class ErrorCode(Enum):
    BAD_MESSAGE = "bad_message"
    UNKNOWN_CONTEXT = "unknown_context"
    CONTEXT_EXISTS = "context_exists"
    ILLEGAL_IN_STATE = "illegal_in_state"
    UNKNOWN_VOICE = "unknown_voice"
    UNSUPPORTED_FORMAT = "unsupported_format"
    UNSUPPORTED = "unsupported"
    OVERLOADED = "overloaded"
    TOO_MANY_CONTEXTS = "too_many_contexts"
    RATE_LIMITED = "rate_limited"
    EXPIRED = "expired"
    SLOW_CONSUMER = "slow_consumer"
    CANNOT_RESUME = "cannot_resume"
    TAKEN_OVER = "taken_over"
    UNAUTHORIZED = "unauthorized"
    ENGINE_FAILED = "engine_failed"


class CloseCode(IntEnum):
    """RFC 6455 section 7.4.1, and the IANA registry for 1012 and 1013."""

    DONE = 1000
    GOING_AWAY = 1001
    INVALID_DATA = 1007
    POLICY = 1008
    TOO_BIG = 1009
    OUR_FAULT = 1011
    TRY_AGAIN_LATER = 1013
    COMING_BACK = 4000  # ours: the socket is given up, and the session is not


# Codes with which a socket may end that is given up for another, or has waited in vain for a pong; or without any word.
_OF_A_DROPPED_SOCKET: Final = (CloseCode.OUR_FAULT, CloseCode.COMING_BACK)


def means_only_the_socket(code: int | None) -> bool:
    """Whether a session may go on that was on a socket which ended with this; None: without a word."""
    return code is None or code in _OF_A_DROPPED_SOCKET


class ProtocolViolation(Exception):
    """`context` and `message_type` are known where the bad message was readable that far."""

    def __init__(
        self, code: ErrorCode, message: str, *, context: str | None = None, message_type: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.context = context
        self.message_type = message_type


class UnknownType(ProtocolViolation):
    """A type of a newer server: a client goes on without the message, docs/protocol.md, "Compatibility"."""
