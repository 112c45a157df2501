"""A conversation with an LLM, spoken while it is written, that its listener may interrupt at any time.

An answer goes from the LLM's stream into a context of the gateway and from there to a player, piece by piece. When the
listener speaks first, the player is silent at once, the context is cancelled, the LLM's stream is left, and the LLM is
told only what was heard of its answer.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Protocol

from voicegate.clients.examples.chat import Llm, LlmError, Message
from voicegate.clients.python.audio import Audio
from voicegate.clients.python.client import Gate
from voicegate.clients.python.context import Context
from voicegate.clients.python.errors import GateError
from voicegate.clients.python.recording import record
from voicegate.clients.python.threaded import iterate_in_thread
from voicegate.protocol import messages as wire


class Player(Protocol):
    """A player of one answer; `SoundCard` is one."""

    def play(self, audio: Audio) -> None: ...

    def stop(self) -> int:
        """Silence now; the milliseconds that were heard."""

    async def drained(self) -> None:
        """Returns when all was heard."""


OpenPlayer = Callable[[wire.Opened], AbstractAsyncContextManager[Player]]


class Assistant:
    """`messages` is the conversation as the LLM sees it."""

    def __init__(
        self,
        gate: Gate,
        llm: Llm,
        open_player: OpenPlayer,
        *,
        instructions: str = "Answer in a few short sentences, as one speaks.",
        voice: str | None = None,
        on_text: Callable[[str], None] = lambda _: None,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """`on_text` is given what the LLM writes, piece by piece; `on_failure` why an answer ended without its end."""
        self.messages: list[Message] = [{"role": "system", "content": instructions}]
        self._gate = gate
        self._llm = llm
        self._open_player = open_player
        self._voice = voice
        self._on_text = on_text
        self._on_failure = on_failure
        self._answer: asyncio.Task[None] | None = None

    async def ask(self, question: str) -> None:
        """Barge-in, where something is still spoken; then the answer begins."""
        await self.interrupt()
        self.messages.append({"role": "user", "content": question})
        self._answer = asyncio.create_task(self._try_to_answer())

    async def interrupt(self) -> None:
        """Silence, and nothing follows."""
        if self._answer is not None:
            answer, self._answer = self._answer, None
            answer.cancel()
            await asyncio.wait({answer})
            if not answer.cancelled():
                answer.result()  # what is no failure of an answer is raised

    async def finished(self) -> None:
        """Returns when the answer was heard."""
        if self._answer is not None:
            await self._answer

    async def _try_to_answer(self) -> None:
        try:
            await self._speak_answer(tuple(self.messages))
        except (LlmError, GateError) as error:
            self._on_failure(error)

    async def _speak_answer(self, conversation: Sequence[Message]) -> None:
        context = await self._gate.open(voice=self._voice)
        player: Player | None = None
        try:
            async with (
                aclosing(iterate_in_thread(lambda: self._llm.answer(conversation))) as pieces,
                self._open_player(context.opened) as player,
            ):
                await record(context, self._told(pieces), player.play)
                await player.drained()
        except BaseException:
            await self._break_off(context, 0 if player is None else player.stop())
            raise
        self._remember(context.text)

    async def _told(self, pieces: AsyncIterator[str]) -> AsyncIterator[str]:
        async for piece in pieces:
            self._on_text(piece)
            yield piece

    async def _break_off(self, context: Context, played_ms: int) -> None:
        with suppress(GateError):  # it has ended in another way
            self._remember((await context.cancel(played_ms)).spoken_text)

    def _remember(self, heard: str) -> None:
        if heard:
            self.messages.append({"role": "assistant", "content": heard})
