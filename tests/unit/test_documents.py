"""Paths in the architecture and the glossary exist: a stranger reads these first."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "gateway", "protocol", "clients", "bench", "docs", "models", "tests")
FILES = {
    f"/{path.relative_to(ROOT)}"
    for package in PACKAGES
    for path in (ROOT / package).rglob("*")
    if path.suffix in (".py", ".md", ".json") and path.is_file()
}
_PATH = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*(?:\.py|/))`")


# For operators.
PAGES = [ROOT / "docs/operations.md", *sorted((ROOT / "docs/operations").glob("*.md"))]


def operations() -> str:
    """All pages for operators."""
    return "\n".join(page.read_text() for page in PAGES)


def is_there(named: str) -> bool:
    """A file by the end of its path, a folder by any of its files."""
    if named.endswith("/"):
        return any(f"/{named}" in file for file in FILES)
    return any(file.endswith(f"/{named}") for file in FILES)


@pytest.mark.parametrize("document", ["architecture.md", "glossary.md"])
def test_every_path_leads_somewhere(document: str) -> None:
    paths = _PATH.findall((ROOT / "docs" / document).read_text())
    assert len(paths) > 40
    assert [path for path in paths if not is_there(path)] == []


def test_a_path_that_leads_nowhere_is_found() -> None:
    assert not is_there("core/gone.py")
    assert not is_there("gone/")


def test_the_architecture_fits_a_page() -> None:
    lines = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    assert len(lines) <= 80
    assert all(len(line) <= 125 for line in lines if not line.startswith("|"))


def test_the_glossary_explains_no_word_twice() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| (\*\*[^|]*)\|", text, re.MULTILINE)
    words = Counter(word for row in rows for word in row.split("**")[1::2])
    assert len(words) > 80
    assert [word for word, number in words.items() if number > 1] == []


def test_no_page_for_operators_is_long() -> None:
    sizes = {page.name: page.stat().st_size for page in PAGES}
    assert len(sizes) > 8
    assert max(sizes.values()) <= 15_000, sizes


def test_every_page_that_names_tensorrt_says_that_it_was_not_executed() -> None:
    """Also where a flag or a folder has its name. Addresses of other pages do not count."""
    pages = {page: page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
    naming = [page for page, text in pages.items() if "tensorrt" in re.sub(r"\]\([^)]*\)", "", text).lower()]
    silent = [page.name for page in naming if "Neither TensorRT nor TensorRT-LLM was executed here" not in pages[page]]
    assert naming
    assert silent == []
