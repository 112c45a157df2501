"""Plain English in documents and docstrings: `python -m tests.prose` prints each offence, and fails where it found one.

Documents: at most 25 words a sentence, one colon or semicolon, none of the beginnings and words below, and a mean
under 18 words. Docstrings and comments of Python files: the beginnings alone. `--table` prints counts by document.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import sentencex
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("*.md", "docs/**/*.md", "clients/*/README.md", "models/**/*.md")
SOURCES = ("bench", "clients", "deploy", "engine", "gateway", "models", "protocol", "tests", "voicegate")
LONGEST, MEAN = 25, 18
MOST_DECISIONS, WORDS_OF_DECISIONS = 25, 20_000
BEGINNINGS = re.compile(r"(?:Of|Who|Whoever|What|The same|That)\b(?!-)")
# Behind one of these is a place; anything else is most often a time.
_PLACES = (
    "ports?|proxy|proxies|balancers?|front|seams?|address|door|NAT|TLS|firewall|gateway|interface|nginx|HAProxy|it"
)
_BEHIND = rf"(?<!left )behind(?! (?:\S+ ){{0,3}}(?:{_PLACES})\b)"
WORDS = re.compile(rf"\b(?:nobody|whoever|there is none|that there is not|{_BEHIND})\b", re.IGNORECASE)
# An entry of a log begins so.
_DATE = re.compile(r"^\d{4}-\d\d-\d\d: ")
# A number and its unit are one word, whose stop ends a sentence.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|(?:[mu]?s|dB|k?Hz|[kKMG]i?B|GHz|tokens/s|words/s)\b))")
_OTHERS = re.compile(r"node_modules|/vendor/|/\.")


class Offence(NamedTuple):
    path: Path
    line: int
    why: str


class Sentence(NamedTuple):
    line: int
    text: str
    is_prose: bool  # no cell of a table, no title

    @property
    def num_words(self) -> int:
        return sum(any(letter.isalnum() for letter in word) for word in self.text.split())


def sentences_of(markdown: str) -> Iterator[Sentence]:
    inside: list[str] = []
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.nesting == 1:
            inside.append(token.type)
        elif token.nesting == -1:
            inside.pop()
        elif token.type == "inline" and token.map is not None:
            is_prose = not {"heading_open", "th_open", "td_open"} & set(inside)
            text = _UNIT.sub("", "".join(_spoken(child) for child in token.children or ()))
            # Two apostrophes in a line would pass for quotation marks, within which it does not part.
            for sentence in sentencex.segment("en", text.replace("'", "’")):
                yield Sentence(token.map[0] + 1, sentence.strip(), is_prose)


def _spoken(token: Token) -> str:
    """Code counts as one word, a picture as none."""
    if token.type == "code_inline":
        return "`code`"
    return " " if token.type in ("softbreak", "hardbreak") else token.content if token.type == "text" else ""


def offences_of(path: Path, markdown: str) -> Iterator[Offence]:
    found = list(sentences_of(markdown))
    for line, text, is_prose in found:
        num_words = Sentence(line, text, is_prose).num_words
        if num_words > LONGEST:
            yield Offence(path, line, f"{num_words} words: {text}")
        if BEGINNINGS.match(text.lstrip("*_ ")):
            yield Offence(path, line, f"beginning: {text}")
        if is_prose and len(re.findall(r"[:;](?=\s)", _DATE.sub("", text))) > 1:
            yield Offence(path, line, f"more than one colon or semicolon: {text}")
        for word in WORDS.findall(text):
            yield Offence(path, line, f"{word!r}: {text}")
    if mean_of(found) >= MEAN:
        yield Offence(path, 1, f"{mean_of(found):.1f} words a sentence in the mean")


def mean_of(sentences: list[Sentence]) -> float:
    prose = [sentence.num_words for sentence in sentences if sentence.is_prose]
    return sum(prose) / max(len(prose), 1)


def beginnings_in(path: Path, source: str) -> Iterator[Offence]:
    """Docstrings, and comments at their first line."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and BEGINNINGS.match(ast.get_docstring(node) or ""):
            yield Offence(path, node.body[0].lineno, f"docstring: {(ast.get_docstring(node) or '').splitlines()[0]}")
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row = token.start[0]
            goes_on = row == last + 1 and not token.line[: token.start[1]].strip()
            if not goes_on and BEGINNINGS.match(token.string.lstrip("# ")):
                yield Offence(path, row, f"comment: {token.string}")
            last = row


def files(*patterns: str) -> list[Path]:
    found = {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(path for path in found if not _OTHERS.search(f"/{path.relative_to(ROOT)}"))


def offences_of_decisions() -> Iterator[Offence]:
    decisions = [path for path in files("docs/adr/*.md") if path.name != "README.md"]
    num_words = sum(sentence.num_words for path in decisions for sentence in sentences_of(path.read_text()))
    if len(decisions) > MOST_DECISIONS or num_words > WORDS_OF_DECISIONS:
        yield Offence(ROOT / "docs/adr", 1, f"{len(decisions)} decisions, {num_words} words")


def print_table() -> None:
    sys.stdout.write("mean  longest  words  document\n")
    for path in files(*DOCUMENTS):
        found = list(sentences_of(path.read_text()))
        counts = [sentence.num_words for sentence in found]
        sys.stdout.write(f"{mean_of(found):4.1f} {max(counts):8} {sum(counts):6}  {path.relative_to(ROOT)}\n")


def main() -> int:
    offences = list(offences_of_decisions())
    for path in files(*DOCUMENTS):
        offences += offences_of(path, path.read_text())
    for path in files(*(f"{folder}/**/*.py" for folder in SOURCES)):
        offences += beginnings_in(path, path.read_text())
    if "--table" in sys.argv:
        print_table()
    for offence in offences:
        sys.stdout.write(f"{offence.path.relative_to(ROOT)}:{offence.line}: {offence.why}\n")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
