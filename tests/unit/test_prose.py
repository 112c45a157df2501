"""Each rule of `tests/prose.py` finds its offence, and lets through what is plain."""

from pathlib import Path

import pytest

from tests import prose

PATH = Path("page.md")


def found(markdown: str) -> list[str]:
    return [offence.why for offence in prose.offences_of(PATH, markdown)]


def found_in_source(source: str) -> list[str]:
    return [offence.why for offence in prose.beginnings_in(PATH, source)]


@pytest.mark.parametrize(
    ("markdown", "why"),
    [
        (" ".join(["word"] * 26) + ".", "26 words"),
        (f"| {' '.join(['word'] * 26)} | b |\n|---|---|\n", "26 words"),
        ("What it does is unclear.", "beginning"),
        ("* **Of** three, two remain.", "beginning"),
        ("It starts. The same holds here.", "beginning"),
        ("One: two; three.", "more than one colon"),
        ("Nobody reads it.", "'Nobody'"),
        ("A line comes\nbehind the next answer.", "'behind'"),
        ("\n\n".join([" ".join(["word"] * 20) + "."] * 3), "20.0 words a sentence"),
    ],
)
def test_an_offence_is_found(markdown: str, why: str) -> None:
    assert [each for each in found(markdown) if why in each]


@pytest.mark.parametrize(
    "markdown",
    [
        "It takes 0.3 s. " + " ".join(["word"] * 20) + ".",
        "It stands behind a proxy, or behind the company's nginx.",
        "```sh\nWhat nobody reads: a; b; c\n```",
        "`nobody: a; b` runs it, and `That` is its name.",
        "That-way is a name, and so is Office.",
        "See [one: two](https://example.com/a:b).",
    ],
)
def test_plain_text_passes(markdown: str) -> None:
    assert found(markdown) == []


def test_a_line_is_named() -> None:
    assert [offence.line for offence in prose.offences_of(PATH, "One.\n\nTwo.\n\nNobody.\n")] == [5]


def test_docstrings_and_comments_are_read_at_their_beginning() -> None:
    source = '"""Of a module."""\n\n\ndef run() -> None:\n    """Run it. Of two, one."""\n\n\nrun()  # What it says.\n'
    assert found_in_source(source) == ["docstring: Of a module.", "comment: # What it says."]


def test_a_comment_that_goes_on_has_one_beginning() -> None:
    assert found_in_source("# First line, and\n# that of the second.\n# Of a third.\nx = 1\n# Of one\n") == [
        "comment: # Of one"
    ]


def test_documents_are_plain() -> None:
    assert [each for path in prose.files(*prose.DOCUMENTS) for each in found(path.read_text())] == []
