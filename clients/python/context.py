"""One context as its user holds it: text in, audio out, and how it ended. It must not know sockets.

Text never waits for audio: the two directions may be driven by two tasks.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from numbers import Integral, Real
from typing import Final, Protocol

from voicegate.clients.python.audio import Audio
from voicegate.clients.python.errors import ConnectionLost, ContextClosed, GateError, InvalidInput
from voicegate.clients.python.reception import Phase, Reception, Result
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.messages import AlignmentItem


def split_at(text: str, items: Sequence[AlignmentItem], played_ms: int) -> tuple[str, str]:
    """Splits `text` into the part heard in the first `played_ms`, whole aligned items only, and the rest.

    `items`: all of an utterance's. One that ends before the next begins is still said until then (docs/protocol.md).
    """
    num_chars = 0
    for item, following in zip_longest(items, items[1:]):
        if played_ms >= (item.end_ms if following is None else max(item.end_ms, following.start_ms)):
            num_chars = item.char_end
    return text[:num_chars], text[num_chars:]


# Beyond any audio; and what every JSON reader takes for a whole number.
_MAX_MS: Final = 2**53
_MAX_FLUSH_ID_CHARS: Final = 64  # docs/protocol.md, section 3


class Send(Protocol):
    async def __call__(self, message: wire.SessionMessage, on_leaving: Callable[[], None] = ...) -> None:
        """`on_leaving` is called when nothing is waited for any more, and may raise: then it is not sent."""


class Context:
    """Async-iterate it for its audio, once; the iteration ends when the context has, and raises when it failed."""

    def __init__(
        self,
        context_id: str,
        *,
        send: Send,
        cancel_soon: Callable[[], None],
        max_text_bytes: int,
        max_unread_bytes: int,
    ) -> None:
        """`cancel_soon` has the server told, without waiting."""
        self.context_id = context_id
        self.first_text_s: float | None = None  # event loop's clock, when the first text was sent
        self.last_text_s: float | None = None
        self._send = send
        self._cancel_soon = cancel_soon
        self._max_text_bytes = max_text_bytes
        self._reception = Reception(max_unread_bytes)
        self._text: list[str] = []
        # Text waits where much of it is unacknowledged: what follows it waits after it.
        self._order = asyncio.Lock()
        self._num_flushes: Counter[str] = Counter()  # sent, by id
        self._has_text_ended = False
        self._told_played_ms: int | None = None  # with the cancel that was sent
        self._has_news = asyncio.Event()
        self._has_ended = asyncio.Event()

    # --- what is known ------------------------------------------------------------------------------------

    @property
    def opened(self) -> wire.Opened:
        """Voice, format, sample rate and pre-skip of the audio."""
        assert self._reception.opened is not None, "Gate.open returns opened contexts only"
        return self._reception.opened

    @property
    def result(self) -> Result | None:
        """`Done` or `Cancelled` once ended so; None while it runs, and when it failed."""
        return self._reception.result

    @property
    def alignments(self) -> Sequence[wire.AlignmentItem]:
        """When each piece of the text is spoken, as far as known."""
        return tuple(self._reception.alignments)

    @property
    def flushes(self) -> Sequence[wire.Flushed]:
        """The flushes answered so far."""
        return tuple(self._reception.flushes)

    @property
    def end_pts_48k(self) -> int | None:
        """Exact end of the audio, pre-skip counted in; None before the last audio and when cut short."""
        return self._reception.end_pts_48k

    @property
    def text(self) -> str:
        """All text given so far."""
        return "".join(self._text)

    # --- text in ------------------------------------------------------------------------------------------

    async def say(self, text: str) -> None:
        """Append text exactly as written, any size, any split. Raises how the context ended, if it has.

        Where it is cancelled, `text` has what was said of it.
        """
        pieces = list(_pieces(text, self._max_text_bytes))
        async with self._order:
            self._require_text_open("text")
            for piece in pieces:
                # It may have waited for long: what has ended meanwhile is not spoken by another of this name.
                await self._send(wire.Text(self.context_id, piece), partial(self._note_said, piece))

    def _note_said(self, piece: str) -> None:
        self._require_open()
        self._text.append(piece)
        self.last_text_s = _now_s()
        if self.first_text_s is None and not piece.isspace():
            self.first_text_s = self.last_text_s

    async def flush(self, flush_id: str = "") -> None:
        """Have all text so far spoken without waiting for more; returns at once. Raises as `say` does."""
        _check_flush_id(flush_id)

        def note() -> None:
            self._require_open()
            self._num_flushes[flush_id] += 1

        async with self._order:
            self._require_text_open("flush")
            await self._send(wire.Flush(self.context_id, flush_id), note)

    async def end(self) -> None:
        """No more text; the rest is spoken, and then the context ends."""
        async with self._order:
            self._require_open()
            if not self._has_text_ended:
                self._has_text_ended = True
                await self._send(wire.End(self.context_id))

    async def cancel(self, played_ms: float | None = None) -> wire.Cancelled:
        """Barge-in: stop at once and drop unread audio. Returns the text split at what the listener heard.

        Also right after the server is done, as long as a player still plays. Raises how the context failed, and
        InvalidInput for what is no time; then nothing is cancelled.
        """
        played_ms = None if played_ms is None else _whole_ms(played_ms, "played_ms")
        is_running = self._reception.phase is Phase.OPEN
        self._reception.begin_cancel()
        self._has_news.set()
        if is_running:
            self._told_played_ms = played_ms
            await self._send(wire.Cancel(self.context_id, played_ms))
        await self._has_ended.wait()
        match self._reception.result:
            case wire.Cancelled() as cancelled if played_ms in (None, self._told_played_ms):
                return cancelled
            case wire.Cancelled(audio_ms=audio_ms, spoken_text=spoken, remaining_text=remaining):
                return self._split(audio_ms, spoken, remaining, played_ms)  # cancelled before by who did not know
            case wire.Done(audio_ms=audio_ms):
                return self._split(audio_ms, self.text, "", played_ms)
            case None:
                assert self._reception.error is not None
                raise self._reception.error

    def _split(self, audio_ms: int, spoken: str, remaining: str, played_ms: int | None) -> wire.Cancelled:
        """At what was heard, where that is less than was `spoken`."""
        if played_ms is not None and played_ms < audio_ms:
            spoken, remaining = split_at(spoken + remaining, self._reception.alignments, played_ms)
        return wire.Cancelled(self.context_id, audio_ms, spoken, remaining)

    def abandon(self) -> None:
        """Cancel, without a wait for the server's word; nothing where it has ended."""
        is_running = self._reception.phase is Phase.OPEN
        self._reception.begin_cancel()
        self._has_news.set()
        if is_running:
            self._cancel_soon()

    async def report_playback(self, played_ms: float, buffer_ms: float = 0, underruns: int = 0) -> None:
        """Tell the server where the player is; welcome at any time, never necessary. Raises InvalidInput."""
        played_ms, buffer_ms = _whole_ms(played_ms, "played_ms"), _whole_ms(buffer_ms, "buffer_ms")
        report = wire.Playback(self.context_id, played_ms, buffer_ms, _count(underruns, "underruns"))
        with suppress(ConnectionLost):  # players go on for a while after the gateway has gone
            await self._send(report)

    # --- audio out ----------------------------------------------------------------------------------------

    def __aiter__(self) -> "Context":
        return self

    async def __anext__(self) -> Audio:
        while True:
            if (audio := self._reception.read()) is not None:
                return audio
            if self._reception.error is not None:
                raise self._reception.error
            if self._reception.phase in (Phase.CANCELLING, Phase.ENDED):
                raise StopAsyncIteration
            await self._wait_for_news()

    async def wait_flushed(self, flush_id: str = "") -> wire.Flushed:
        """Returns when the audio of the latest `flush` with this id has arrived, read or not.

        Raises how the context ended.
        """
        number = max(1, self._num_flushes[flush_id])
        while True:
            answers = [flushed for flushed in self._reception.flushes if flushed.id == flush_id]
            if len(answers) >= number:
                return answers[number - 1]
            self._require_open()
            await self._wait_for_news()

    # --- called by the link -------------------------------------------------------------------------------

    async def wait_opened(self) -> None:
        """Raises how it failed."""
        while self._reception.phase is Phase.OPENING:
            await self._wait_for_news()
        if self._reception.error is not None:
            raise self._reception.error

    def receive(self, message: wire.ServerMessage | AudioMessage) -> bool:
        """True: cancel it at the server, which does not know that it failed."""
        match message:
            case AudioMessage():
                needs_cancel = self._reception.receive_audio(message, _now_s())
            case wire.Opened() | wire.Alignment() | wire.Flushed() | wire.Done() | wire.Cancelled() | wire.Error():
                needs_cancel = self._reception.receive(message)
            case _:
                needs_cancel = False
        self._tell()
        return needs_cancel

    def lose(self, error: GateError) -> None:
        """The socket is gone."""
        self._reception.fail(error)
        self._tell()

    def _tell(self) -> None:
        self._has_news.set()
        if self._reception.phase is Phase.ENDED:
            self._has_ended.set()

    async def _wait_for_news(self) -> None:
        """Waits for news of any kind; the caller looks whether it was what it waits for."""
        self._has_news.clear()
        await self._has_news.wait()

    def _require_text_open(self, what: str) -> None:
        self._require_open()
        if self._has_text_ended:
            raise ContextClosed(f"context {self.context_id} takes no {what} after end()")

    def _require_open(self) -> None:
        if self._reception.error is not None:
            raise self._reception.error
        if self._reception.phase is not Phase.OPEN:
            raise ContextClosed(f"context {self.context_id} has ended")


def _pieces(text: str, max_bytes: int) -> Iterator[str]:
    """`text` in parts of at most `max_bytes` of UTF-8 each."""
    if not isinstance(text, str):
        raise InvalidInput(f"text is {text!r:.80}, a {type(text).__name__}; it must be str")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"text cannot be written as UTF-8: {error.reason}") from error
    start = 0
    while start < len(encoded):
        stop = min(start + max_bytes, len(encoded))
        while stop < len(encoded) and encoded[stop] & 0b1100_0000 == 0b1000_0000:  # inside a character
            stop -= 1
        yield encoded[start:stop].decode()
        start = stop


def _whole_ms(time_ms: object, name: str) -> int:
    """As the server takes it: players' clocks have fractions. Raises InvalidInput."""
    if not isinstance(time_ms, Real) or not 0 <= float(time_ms) <= _MAX_MS:  # NumPy's numbers are Real
        raise InvalidInput(f"{name} is {time_ms!r}; it must be milliseconds of audio, from 0")
    return round(float(time_ms))


def _count(number: object, name: str) -> int:
    """Raises InvalidInput."""
    if not isinstance(number, Integral) or not 0 <= int(number) <= _MAX_MS:
        raise InvalidInput(f"{name} is {number!r}; it is how many there were, from 0")
    return int(number)


def _check_flush_id(flush_id: object) -> None:
    if not isinstance(flush_id, str) or len(flush_id) > _MAX_FLUSH_ID_CHARS:
        raise InvalidInput(f"flush_id {flush_id!r:.80} is not up to {_MAX_FLUSH_ID_CHARS} characters")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
