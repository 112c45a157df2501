"""Characters and when they sound, as messages of audio tell them: each once, from where the last one ended. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from voicegate.protocol.messages import AlignmentItem


@dataclass(frozen=True, slots=True)
class CharTimes:
    """Lists of equal length. `starts_ms` count from the end of what was told before."""

    chars: list[str]
    starts_ms: list[int]
    durations_ms: list[int]


@dataclass(slots=True)
class CharClock:
    """Of one context. While words are known before they are heard, `told_ms` is where each message's audio begins."""

    told_ms: int = 0
    _waiting: deque[tuple[str, int, int]] = field(default_factory=deque)  # character, start, end
    _last_char: int | None = None  # index behind the last one that is known, in the text of the context

    def learn(self, items: Iterable[AlignmentItem]) -> None:
        for item in items:
            if self._last_char is not None and item.char_start > self._last_char:
                self._waiting.append((" ", item.start_ms, item.start_ms))
            self._last_char = item.char_end
            duration_ms = item.end_ms - item.start_ms
            num_chars = max(1, len(item.text))
            times = [item.start_ms + duration_ms * index // num_chars for index in range(num_chars + 1)]
            self._waiting.extend(zip(item.text, times, times[1:], strict=False))

    def take(self, until_ms: int | None = None) -> CharTimes | None:
        """What begins before then; None: all there is, or where there is nothing."""
        taken: list[tuple[str, int, int]] = []
        while self._waiting and (until_ms is None or self._waiting[0][1] < until_ms):
            taken.append(self._waiting.popleft())
        if not taken:
            return None
        zero_ms = self.told_ms
        starts_ms = [max(start_ms, zero_ms) for _, start_ms, _ in taken]
        ends_ms = [end_ms if until_ms is None else min(end_ms, until_ms) for _, _, end_ms in taken]
        self.told_ms = max(zero_ms, ends_ms[-1])
        return CharTimes(
            chars=[char for char, _, _ in taken],
            starts_ms=[start_ms - zero_ms for start_ms in starts_ms],
            durations_ms=[max(0, end_ms - start_ms) for start_ms, end_ms in zip(starts_ms, ends_ms, strict=True)],
        )
