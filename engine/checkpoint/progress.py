"""What a conversion tells of itself while it runs. Knows nothing of terminals."""

from typing import Protocol


class Progress(Protocol):
    """Parts come one after the other: begin, advance any number of times, finish."""

    def begin(self, part: str, num_bytes: int) -> None:
        """`num_bytes`: what `advance` will add up to; 0 where that is not known."""

    def advance(self, num_bytes: int) -> None:
        """This much more of the part is done."""

    def finish(self, outcome: str) -> None:
        """The part is done; `outcome` says how, in a few words."""

    def remark(self, text: str) -> None:
        """Something that the user should know, between parts or within one."""
