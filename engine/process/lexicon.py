"""Dictionaries that one engine process has: each is sent once, however many utterances name it."""

import weakref
from collections import deque
from collections.abc import Callable
from itertools import count

import msgspec

from voicegate.engine.dictionary import Dictionary
from voicegate.engine.process.wire import Command

Send = Callable[[int, int, bytes], None]


class Lexicon:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._next = count()
        self._numbers: weakref.WeakKeyDictionary[Dictionary, int] = weakref.WeakKeyDictionary()
        self._gone: deque[int] = deque()  # from whatever thread a dictionary is let go of in

    def number_of(self, dictionary: Dictionary) -> int:
        """By which the process knows it from now on."""
        while self._gone:
            self._send(Command.FORGET, self._gone.popleft(), b"")
        number = self._numbers.get(dictionary)
        if number is None:
            number = self._numbers[dictionary] = next(self._next)
            weakref.finalize(dictionary, self._gone.append, number).atexit = False
            self._send(Command.DEFINE, number, msgspec.json.encode(dictionary.entries))
        return number
