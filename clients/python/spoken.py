"""Where in its text a context stood when the listener interrupted. Pure."""

from collections.abc import Sequence
from itertools import zip_longest

from voicegate.protocol.messages import AlignmentItem


def split_at(text: str, items: Sequence[AlignmentItem], played_ms: int) -> tuple[str, str]:
    """Splits `text` into the part heard in the first `played_ms`, whole aligned items only, and the rest.

    `items`: all of an utterance's. One that ends before the next begins is still said until then (docs/protocol.md).
    """
    num_chars = 0
    for item, following in zip_longest(items, items[1:]):
        if played_ms >= (item.end_ms if following is None else max(item.end_ms, following.start_ms)):
            num_chars = item.char_end
    return text[:num_chars], text[num_chars:]
