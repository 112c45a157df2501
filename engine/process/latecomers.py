"""Utterances for which there was room when their front placed them, and none when they came: they wait. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from voicegate.engine.interface import Cancelled, UtteranceRequest
from voicegate.engine.process.wire import Command

# Room that was there a millisecond ago is there again soon: as long as a clause takes at most. Higher keeps a client
# waiting who might be served elsewhere; lower fails more of them.
_PATIENCE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Latecomer:
    number: int
    request: UtteranceRequest
    until_s: float
    said: list[tuple[Command, bytes]] = field(default_factory=list)  # to it, meanwhile

    @property
    def cancelled(self) -> Cancelled:
        text = b"".join(body for command, body in self.said if command is Command.PUSH).decode()
        return Cancelled(self.request.utterance_id, 0, 0, "", text)


class Latecomers:
    """In the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[int, Latecomer] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[Latecomer]:
        return iter(list(self._waiting.values()))

    def add(self, number: int, request: UtteranceRequest, now_s: float) -> None:
        self._waiting[number] = Latecomer(number, request, now_s + _PATIENCE_S)

    def get(self, number: int) -> Latecomer | None:
        return self._waiting.get(number)

    def leave(self, latecomer: Latecomer) -> None:
        del self._waiting[latecomer.number]
