"""Allowed entries of a dictionary."""

import pytest

from voicegate.engine.dictionary import MAX_SAID_CHARS, MAX_WRITTEN_CHARS, Dictionary, DictionaryError


@pytest.mark.parametrize(
    ("written", "said", "why"),
    [
        ("", "x", "cannot be looked for"),
        (" SQL", "sequel", "cannot be looked for"),
        ("...", "dots", "cannot be looked for"),
        ("x" * (MAX_WRITTEN_CHARS + 1), "x", "has 65 characters"),
        ("SQL", "", "must be words"),
        ("SQL", "...", "must be words"),
        ("SQL", "one\ntwo", "on one line"),
        ("SQL", "x" * (MAX_SAID_CHARS + 1), "has 129 characters"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused_by_name(written: str, said: str, why: str) -> None:
    with pytest.raises(DictionaryError, match=why):
        Dictionary({"fine": "well", written: said})


def test_the_number_of_entries_is_known() -> None:
    assert len(Dictionary({})) == 0
    assert len(Dictionary({"SQL": "sequel", "sql": "sequel"})) == 2
