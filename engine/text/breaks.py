"""Breaks in a text, `<break time="0.8s"/>` of SSML: which tags are one, and how long. Pure.

As ElevenLabs and Cartesia take them, up to 3 s. One without a time is no break but markup (markup.py). The pauses of
MiniMax (`<#0.5#>`, seconds) and of ElevenLabs v3 (`[pause]`) are breaks, too.
"""

import re
from typing import Final

from voicegate.engine.text.patterns import any_of

MAX_PAUSE_MS: Final = 3_000
# Length of breaks side by side together: a writer that wants more than 3 s writes several.
MAX_PAUSES_MS: Final = 10_000

_NAME: Final = "<break"
# A tag that is open for longer was none.
_MAX_TAG_CHARS: Final = 80
_TAG: Final = re.compile(rf"{_NAME}[\s/][^<>\n]{{0,{_MAX_TAG_CHARS}}}>", re.IGNORECASE)
_OPEN_TAG: Final = re.compile(rf"{_NAME}(?:[\s/][^<>\n]{{0,{_MAX_TAG_CHARS}}})?\Z", re.IGNORECASE)
_TIME: Final = re.compile(r"\stime\s*=\s*[\"']?(\d{0,6}(?:\.\d{1,6})?)\s*(ms|s)[\"'\s/>]", re.IGNORECASE)
# Pauses of a vendor's tags without a time: it calls them "short" and "long".
_NAMED_PAUSES_MS: Final = {"[short pause]": 250, "[pause]": 500, "[long pause]": 1_000}
_SECONDS: Final = re.compile(r"<#(\d{1,2}(?:\.\d{1,3})?)#>")
_OPEN_SECONDS: Final = re.compile(r"<(?:#(?:\d{1,2}(?:\.\d{0,3})?#?)?)?\Z")
_NAMED: Final = re.compile(any_of(_NAMED_PAUSES_MS), re.IGNORECASE | re.ASCII)


def break_at(text: str, at: int) -> tuple[str, int] | None:
    """The tag that begins there, and the milliseconds of its pause."""
    tag = _TAG.match(text, at) or _SECONDS.match(text, at) or _NAMED.match(text, at)
    pause_ms = 0 if tag is None else _pause_ms(tag[0])
    return (tag[0], pause_ms) if tag is not None and pause_ms else None


def may_become_break(text: str, at: int) -> bool:
    """Whether what begins there is one but for what is still to come."""
    start = text[at : at + _MAX_TAG_CHARS].lower()
    if any(name.startswith(start) for name in (_NAME, *_NAMED_PAUSES_MS)):
        return True
    return _OPEN_TAG.match(text, at) is not None or _OPEN_SECONDS.match(text, at) is not None


def _pause_ms(tag: str) -> int:
    """Pause of a whole tag; 0: it names no time."""
    if seconds := _SECONDS.fullmatch(tag):
        return min(round(float(seconds[1]) * 1000), MAX_PAUSE_MS)
    if named := _NAMED_PAUSES_MS.get(tag.lower()):
        return named
    time = _TIME.search(tag)
    if time is None or not time[1].strip("."):
        return 0
    length_ms = float(time[1]) * (1 if time[2].lower() == "ms" else 1000)
    return min(round(length_ms), MAX_PAUSE_MS)


def without_breaks(text: str) -> str:
    """`text` without those that only this module knows; of a whole text, which nobody has parted at them."""
    return _NAMED.sub(" ", _SECONDS.sub(" ", text)) if "#>" in text or "pause]" in text.lower() else text
