"""One turn as its writer and its listener live it. It must not know which protocol it is."""

import array
import asyncio
import time
from contextlib import suppress
from typing import Final

from voicegate.clients.bench.dialects.conversation import Chunk, Conversation, ConversationLost, Ended
from voicegate.clients.bench.dialects.ear import AUDIBLE_PEAK
from voicegate.clients.bench.plan import Outcome, Reader, Record, Turn, Visit

# A slow reader stops for so long after every so much audio.
_SLOW_PAUSE_S: Final = 2.0
_SLOW_EVERY_48K: Final = 96_000


class Listener:
    def __init__(self, conversation: Conversation, turn: Turn, visit: Visit, due_s: float) -> None:
        self.is_lost = False
        self._is_listening = True
        self._is_over = False  # the turn, because we said so
        self._conversation = conversation
        self._turn = turn
        self._visit = visit
        self._due_s = due_s
        self._sent_s: float | None = None
        self._lag_s = 0.0
        self._arrivals: list[tuple[float, int]] = []
        self._received_48k = 0
        self._audible_48k: int | None = None
        self._is_coded = False  # then nobody knows here what of it can be heard
        self._cancelled_s: float | None = None
        self._stopped_s: float | None = None
        self._last_audio_s: float | None = None
        self._message = ""

    async def listen(self, *, until_s: float) -> Outcome:
        """Speak the turn and hear it. What still runs at `until_s` is cut off, and the connection with it."""
        writing = asyncio.create_task(self._write())
        cancelling: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(max(until_s - time.monotonic(), 0.0)) as limit:
                num_unpaused_48k = 0
                while True:
                    received = await self._conversation.receive()
                    if isinstance(received, Ended):
                        return self._outcome(received)
                    if not received.num_48k:  # of no length: it is not the first audio
                        continue
                    self._hear(received)
                    if cancelling is None and self._turn.cancel_after_s is not None:
                        cancelling = asyncio.create_task(self._interrupt(self._turn.cancel_after_s, writing, limit))
                    num_unpaused_48k += received.num_48k
                    if self._visit.reader is Reader.SLOW and num_unpaused_48k >= _SLOW_EVERY_48K:
                        num_unpaused_48k = 0
                        await asyncio.sleep(_SLOW_PAUSE_S)
        except TimeoutError:
            if self._is_over:
                return Outcome.CANCELLED
            with suppress(ConversationLost):
                await self._conversation.close()
            return Outcome.CUT_OFF
        except ConversationLost as error:
            self.is_lost, self._message = True, str(error)
            return Outcome.REFUSED if error.is_refused else Outcome.FAILED
        finally:
            self._is_listening = False
            for task in (writing, cancelling):
                if task is not None:
                    task.cancel()
                    (ended,) = await asyncio.gather(task, return_exceptions=True)
                    if isinstance(ended, Exception):  # a fault of the bench, which would pass for the server's
                        raise ended

    def record(self, visit: int, index: int, outcome: Outcome) -> Record:
        return Record(
            visit=visit,
            turn=index,
            outcome=outcome,
            due_s=self._due_s,
            sent_s=self._due_s if self._sent_s is None else self._sent_s,
            ended_s=time.monotonic(),
            num_letters=len(self._turn.text),
            words_per_s=self._turn.words_per_s,
            is_slow=self._visit.reader is Reader.SLOW,
            arrivals=tuple(self._arrivals),
            cancelled_s=self._cancelled_s,
            stopped_s=self._stopped_s,
            last_audio_s=self._last_audio_s,
            lag_s=self._lag_s,
            voice=self._turn.voice,
            message=self._message,
            audible_48k=self._audible_48k,
        )

    async def _write(self) -> None:
        """Each piece at its time, whatever became of the ones before. A lost connection is the reader's to tell."""
        with suppress(ConversationLost):
            await self._conversation.begin(self._turn)
            for piece in self._turn.pieces:
                due_s = self._due_s + piece.at_s
                if (wait_s := due_s - time.monotonic()) > 0:
                    await asyncio.sleep(wait_s)
                now_s = time.monotonic()
                self._lag_s = max(self._lag_s, now_s - due_s)
                self._sent_s = self._sent_s or now_s
                await self._conversation.say(piece.text)
            await self._conversation.end()

    async def _interrupt(self, after_s: float, writing: "asyncio.Task[None]", limit: asyncio.Timeout) -> None:
        """Where the server has no answer to it, listening ends here."""
        await asyncio.sleep(after_s)
        writing.cancel()
        self._cancelled_s = time.monotonic()
        with suppress(ConversationLost):
            self._is_over = await self._conversation.cancel(round((self._cancelled_s - self._arrivals[0][0]) * 1000))
            if self._is_over and self._is_listening:
                limit.reschedule(asyncio.get_running_loop().time())

    def _hear(self, chunk: Chunk) -> None:
        if self._cancelled_s is not None:
            self._last_audio_s = time.monotonic()
            return
        self._arrivals.append((time.monotonic(), chunk.num_48k))
        self._is_coded = self._is_coded or not chunk.pcm
        if self._audible_48k is None and (silence_48k := _silence_48k(chunk)) is not None:
            self._audible_48k = self._received_48k + silence_48k
        self._received_48k += chunk.num_48k

    def _outcome(self, ended: Ended) -> Outcome:
        self._message = ended.message
        if ended.is_cancelled and self._cancelled_s is not None:
            self._stopped_s = time.monotonic()
        if ended.is_refused:
            return Outcome.REFUSED
        if self._cancelled_s is None:
            self._message = self._message or self._unheard()
        if self._message:
            return Outcome.FAILED
        return Outcome.CANCELLED if self._cancelled_s is not None else Outcome.DONE

    def _unheard(self) -> str:
        """Why a turn that ended well was none; "": it could be heard."""
        if not self._arrivals:
            return "it ended, and no audio had come"
        if self._audible_48k is None and not self._is_coded:
            return "it ended, and all of its audio was silence"
        return ""


def _silence_48k(chunk: Chunk) -> int | None:
    """Before its first audible sample; None: it has none, or no samples to look at."""
    samples = array.array("h", chunk.pcm)
    for index, sample in enumerate(samples):
        if abs(sample) > AUDIBLE_PEAK:
            return index * chunk.num_48k // len(samples)
    return None
