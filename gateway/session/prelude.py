"""Text that a context is given before there is anything to say. Pure.

Until then no engine hears of the context; then it hears all of this in order, so that speech is the same as if it had
listened from the beginning.
"""

from dataclasses import dataclass
from typing import Final

# Marks that no language's reader says aloud, in any combination; a symbol (%, &, =) may be a word. Whatever is missing
# here costs an utterance that says nothing, whatever is here wrongly would not be heard until more text comes.
# Not the middle dot: between brackets it multiplies, ")·(".
_SILENT_MARKS: Final = frozenset(".,;:!?…'\"‘’“”()[]{}-–—。，、；：！？「」『』（）《》〈〉【】")
# More than that goes to the engine as it is: what waits here is memory that no one is charged for.
_MAX_BYTES: Final = 1024


def may_sound(text: str) -> bool:
    return not all(char in _SILENT_MARKS or char.isspace() for char in text)


@dataclass(slots=True)
class Prelude:
    before_flush: str = ""
    after_flush: str = ""
    flush_id: str | None = None  # of the last flush; those before it divide nothing

    @property
    def text(self) -> str:
        return self.before_flush + self.after_flush

    @property
    def is_something_to_say(self) -> bool:
        return may_sound(self.text) or len(self.text.encode()) > _MAX_BYTES

    def add(self, text: str) -> None:
        self.after_flush += text

    def flush(self, flush_id: str) -> None:
        if self.text:
            self.before_flush, self.after_flush, self.flush_id = self.text, "", flush_id
