"""Words of an unfinished sentence that may be read, and said."""

import pytest

from voicegate.engine.text.growing import known


@pytest.mark.parametrize(
    ("pending", "read", "said"),
    [
        ("", "", ""),
        ("The", "The", ""),
        ("The ", "The ", ""),
        ("The tr", "The tr", "The"),
        ("The train ", "The train ", "The"),
        ("The train to", "The train to", "The train"),
        # Another character may change how these are read.
        ("It costs 1", "It costs", "It"),
        ("It costs 1,2", "It costs", "It"),
        ("Call Dr.", "Call", ""),
        ("Read <b", "Read", ""),
        ("Say `x", "Say", ""),
        ("The train, to", "The train, to", "The train,"),
        ("V. Put", "", ""),  # a fifth heading?
        ("So\nI. Intro", "So\nI. Intro", "So"),
        ("V. Putin met her in a big old town", "V. Putin met her in a big old town", "V. Putin met her in a big old"),
        ("今天天气", "今天天气", "今天"),
        ("今天天气很好。明", "今天天气很好。明", "今天天气很好。"),
        ("我用Python写", "我用Python写", "我用Python"),
    ],
)
def test_read_and_said(pending: str, read: str, said: str) -> None:
    found = known(pending)
    assert (pending[: found.read].strip(), pending[: found.said].strip()) == (read.strip(), said)
