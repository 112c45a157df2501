"""A language's abbreviations -> their words: z. B. is zum Beispiel. Pure."""

import re
from collections.abc import Callable, Collection

from voicegate.engine.text.languages.definition import LanguageEntry
from voicegate.engine.text.languages.rules import NO_WORD_BEHIND


def abbreviations_of(entry: LanguageEntry, units: Collection[str]) -> Callable[[str], str]:
    """What reads them; `units` are units where a number is before them: 45 min."""
    said = {name.replace(" ", ""): words for name, words in entry.abbreviations.items()}
    said |= {
        name[0].upper() + name[1:]: words[0].upper() + words[1:] for name, words in said.items() if name[0].islower()
    }
    if not said:
        return lambda text: text
    # Not within a word, nor behind a letter with a stop: U.S.A. has no S.
    pattern = re.compile(
        rf"(?<![^\W\d_])(?<!\b[^\W\d_]\.)(?:{'|'.join(map(_written, sorted(said, key=len, reverse=True)))})"
    )
    ending = {name.replace(" ", "") for name in entry.ending_abbreviations}

    def spoken(match: re.Match[str]) -> str:
        name = match[0].replace(" ", "")
        is_unit = name.removesuffix(".") in units or name in units
        if is_unit and match.string[: match.start()].rstrip(" ")[-1:].isdecimal():
            return match[0]
        is_end = name.endswith(".") and name in ending and not match.string[match.end() :].strip()
        runs_on = match.string[match.end() : match.end() + 1].isalnum()
        return said[name] + ("." if is_end else " " if runs_on else "")

    return lambda text: pattern.sub(spoken, text)


def _written(name: str) -> str:
    """A pattern of it, with or without blanks behind its stops."""
    pattern = re.escape(name).replace(r"\.", r"\. ?").removesuffix(" ?")
    return pattern if name.endswith(".") else pattern + NO_WORD_BEHIND
