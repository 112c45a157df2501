"""Where in its text a context stood when the listener interrupted. Pure."""

from collections.abc import Iterable

from voicegate.protocol.messages import AlignmentItem


def split_at(text: str, items: Iterable[AlignmentItem], played_ms: int) -> tuple[str, str]:
    """What of `text` was heard in the first `played_ms`, whole aligned items only, and the rest."""
    num_spoken = max((item.char_end for item in items if item.end_ms <= played_ms), default=0)
    return text[:num_spoken], text[num_spoken:]
