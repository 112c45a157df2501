"""The sender of an HTTP request, as the listener tells the app."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.types import Scope

from voicegate.gateway.auth.access import Access
from voicegate.gateway.auth.keyring import Key
from voicegate.gateway.server.entrance.callers import caller_of
from voicegate.gateway.session.quota import Excess, Owner


@dataclass(frozen=True, slots=True)
class Visitor:
    # With the X-Forwarded-For headers and the key: takes a socket's place until the connection is lost, or says why
    # there is none.
    admit: Callable[[Sequence[str], Key | None], Owner | Excess]
    abort: Callable[[], None]  # the connection
    key: Key | None = None  # with which it asks; None where none is asked for


def visitor_of(request: Request) -> Visitor:
    visitor: Visitor = request.state.visitor
    return visitor


def request_id_of(request: Request) -> str:
    """Which is its session's, too."""
    request_id: str = request.state.request_id
    return request_id


def key_in(request: Request, access: Access) -> Key | None:
    """The key that it asks with, as it is now; None: there is none, or it is a token, which is none."""
    return access.key_among(caller_of(request.headers.getlist, f"?{request.url.query}").keys)


def note_key(scope: Scope, key: Key) -> None:
    """For the app behind."""
    scope["state"]["visitor"] = replace(scope["state"]["visitor"], key=key)
