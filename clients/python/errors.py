"""Everything that the Python client raises.

GateError
  ConnectFailed       no gateway answered, or it refused the handshake; `retry_after_ms` where it said so
  ConnectionLost      the socket dropped, or the gate was closed, while this context was in flight; nothing is retried
                      by itself
  ContextFailed       this context ended without its whole audio; `code` is the server's, or one of ours:
    ReaderTooSlow     its audio was not read, so it was dropped and the context cancelled
  ContextClosed       text for a context that takes no more, ended or cancelled; a context of a gate that is closed
  InvalidInput        an argument that no server could accept (also a ValueError)
  MissingDependency   an optional library is not installed; the message names the remedy
"""


class GateError(Exception):
    pass


class ConnectFailed(GateError):
    """`is_transient`: whether the same attempt may succeed later."""

    def __init__(
        self, message: str, *, is_transient: bool, status: int | None = None, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message)
        self.is_transient = is_transient
        self.status = status  # of HTTP, where a server answered
        self.retry_after_ms = retry_after_ms


class ConnectionLost(GateError):
    pass


class ContextFailed(GateError):
    def __init__(self, code: str, message: str, retry_after_ms: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms


class ReaderTooSlow(ContextFailed):
    def __init__(self, unread_bytes: int) -> None:
        super().__init__("reader_too_slow", f"{unread_bytes} bytes of audio were waiting to be read")


class ContextClosed(GateError):
    pass


class InvalidInput(GateError, ValueError):
    pass


class MissingDependency(GateError):
    pass
