"""Who is at the other end of an HTTP request, as the listener tells the app."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from voicegate.gateway.session.quota import Excess, Owner


@dataclass(frozen=True, slots=True)
class Visitor:
    # With the X-Forwarded-For headers: takes a socket's place until the connection is lost, or says why there is none.
    admit: Callable[[Sequence[str]], Owner | Excess]
    abort: Callable[[], None]  # the connection


def visitor_of(request: Request) -> Visitor:
    visitor: Visitor = request.state.visitor
    return visitor
