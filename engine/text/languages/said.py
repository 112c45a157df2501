"""Words said in the place of a part of the text. Pure."""

from typing import NamedTuple


class Said(NamedTuple):
    words: str
    end: int  # of the part
