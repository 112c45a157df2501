"""Where the text of a context is cut at what was heard."""

import pytest

from voicegate.clients.python.context import split_at
from voicegate.protocol.messages import AlignmentItem

TEXT = "Pay 1,234 now."
ITEMS = (
    AlignmentItem("Pay", 0, 200, 0, 3),
    AlignmentItem("1,234", 200, 600, 4, 9),
    AlignmentItem("now.", 1_900, 2_100, 10, 14),
)


@pytest.mark.parametrize(
    ("played_ms", "spoken"),
    [
        (0, ""),
        (199, ""),
        (200, "Pay"),
        (600, "Pay"),
        (1_899, "Pay"),
        (1_900, "Pay 1,234"),
        (2_099, "Pay 1,234"),
        (2_100, TEXT),
    ],
)
def test_an_item_is_said_until_the_next_one_begins(played_ms: int, spoken: str) -> None:
    """A number's end is told before its sound is made, and so too soon."""
    assert split_at(TEXT, ITEMS, played_ms) == (spoken, TEXT[len(spoken) :])


def test_without_items_nothing_was_said() -> None:
    assert split_at(TEXT, (), 1_000) == ("", TEXT)
