"""Has voices made in a process of its own for each: its load is niced, its faults are its own, and it can be ended."""

import asyncio
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

import msgspec
import structlog
import torch

from voicegate.engine.child_process import start_module
from voicegate.engine.interface import EngineError, NewVoice, Unsupported, VoiceRefused
from voicegate.engine.voices.checks import check_texts
from voicegate.engine.voices.maker_wire import Answer, Made, Task, read_message, write_message
from voicegate.engine.voices.making import unpacked
from voicegate.engine.voices.sound_files import check_is_sound_file
from voicegate.engine.voices.voice import Voice

log = structlog.get_logger()

MODULE: Final = "voicegate.engine.voices.maker_process"

# For the longest recording, 30 s: upstream's encoders take seconds, on a busy machine with a cold disk a minute or two.
# Lower -> a slow machine makes no voices; higher -> one that hangs keeps its place for longer.
_PATIENCE_S: Final = 150.0
# Each has up to a gigabyte of encoders. Lower -> one that hangs holds up all others; higher -> they take more from
# speech.
_MAX_PROCESSES: Final = 2

_ERRORS: Final = {error.__name__: error for error in (VoiceRefused, Unsupported)}


class VoiceMaker(Protocol):
    async def make(self, new: NewVoice) -> Voice:
        """Ended when it is cancelled. Raises VoiceRefused, Unsupported, EngineError."""

    def close(self) -> None:
        """Closes. Voices that are being made are given up: they raise EngineError."""


class ProcessMaker:
    """Implements VoiceMaker."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir
        self._makings: set[_Making] = set()
        self._places = asyncio.Semaphore(_MAX_PROCESSES)

    async def make(self, new: NewVoice) -> Voice:
        check_is_sound_file(new.recording)
        check_texts(new.transcript, new.description)
        async with self._places:
            return await self._make(new)

    async def _make(self, new: NewVoice) -> Voice:
        making = _Making(Task(str(self._model_dir), torch.get_num_threads(), new))
        self._makings.add(making)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await asyncio.to_thread(making.run)
        except TimeoutError as error:
            log.error("voice_maker_hung", patience_s=_PATIENCE_S)
            raise EngineError(f"no voice was made within {_PATIENCE_S:.0f} s; try again when less is spoken") from error
        finally:
            self._makings.discard(making)
            making.end()
        if isinstance(answer, Made):
            return unpacked(answer.voice)
        raise _ERRORS.get(answer.error, EngineError)(answer.message)

    def close(self) -> None:
        for making in self._makings:
            making.end()


class _Making:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._lock = threading.Lock()  # over the two that follow
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def end(self) -> None:
        """From any thread, at any time: `run` returns soon."""
        with self._lock:
            self._is_over = True
            if self._process is not None:
                self._process.kill()  # nothing where it has ended

    def run(self) -> Answer:
        """Waits for it. Raises EngineError."""
        process, answer = self._start(), None
        # It may end before it has read all: then writing fails, or the end of `process`, which writes what is left.
        with suppress(BrokenPipeError), process:
            pipes = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
            write_message(pipes[0], self._task)
            answer = read_message(pipes[1])
        if answer is not None:
            decoded: Answer = msgspec.msgpack.decode(answer, type=Answer)
            return decoded
        if not self._is_over:
            log.error("voice_maker_died", status=process.returncode)
        raise EngineError("the process that made the voice has ended; see the log")

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._is_over:
                raise EngineError("the voice is not made any more")
            try:
                self._process = start_module(MODULE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            except OSError as error:
                raise EngineError(f"no process can be started to make the voice: {error}") from error
            return self._process
