"""Web and mail addresses -> how they are dictated: "example dot com". Pure. Digits in them are left to the numbers."""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class AddressWords:
    """How a language dictates the signs of an address."""

    dot: str = " dot "
    dash: str = " dash "
    underscore: str = " underscore "
    plus: str = " plus "
    at: str = " at "
    slash: str = " slash "


ENGLISH: Final = AddressWords()
CHINESE: Final = AddressWords(dot="点", dash="杠", underscore="下划线", plus="加", at="艾特", slash="斜杠")

_LABEL: Final = "[A-Za-z0-9-]{1,63}"
_TOP_LEVEL: Final = (
    "com|org|net|edu|gov|io|ai|dev|app|co|me|info|uk|us|eu|de|fr|ca|au|jp|cn|in|es|it|ru|kr|nl|ch|at|be|br|mx|pl|se|dk|fi"
    "|pt"
)
# Behind a name that ends with a digit or a mark, too: report_2024.pdf.
_FILE_END: Final = re.compile(
    r"(?<=[A-Za-z0-9_)-])\.(?=(?i:pdf|docx?|xlsx?|pptx?|csv|json|ya?ml|toml|txt|md|xml|html?|css|log|sql|ini|py|ipynb|jsx?|tsx?"
    r"|sh|jpe?g|png|gif|svg|webp|heic|zip|gz|tar|mp[34]|wav|mov|exe|dmg|apk)(?![A-Za-z0-9]))"
)
_MAIL: Final = re.compile(
    rf"(?<![A-Za-z0-9_.+-])(?P<user>[A-Za-z0-9][A-Za-z0-9._+-]{{0,63}})@(?P<host>{_LABEL}(?:\.{_LABEL}){{1,5}})"
)
# An address ends at the first letter or mark that is not ASCII: Chinese follows it without a blank.
_PATH: Final = r"[!#-;=?-~]"
_URL: Final = re.compile(rf"(?<![A-Za-z0-9_])(?:https?://|www\.)(?=[A-Za-z0-9])(?P<rest>{_PATH}{{1,2000}})")
_BARE: Final = re.compile(
    rf"(?<![A-Za-z0-9_.@/-])(?P<rest>{_LABEL}(?:\.{_LABEL}){{0,4}}\.(?:{_TOP_LEVEL})(?:/{_PATH}{{0,2000}}|(?![A-Za-z0-9_-])))"
)
_TRAILING: Final = ".,;:!?)]}'*_~"
# Longer paths, and ones that are no words, are left out: nobody could follow them.
_MAX_SPOKEN_SEGMENTS: Final = 3
_SPOKEN_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]{1,20}")


def read_addresses(text: str, words: AddressWords = ENGLISH) -> str:
    if "@" in text:
        text = _MAIL.sub(lambda match: _mail(match, words), text)
    if "." in text or "://" in text:
        text = _BARE.sub(lambda match: _url(match, words), _URL.sub(lambda match: _url(match, words), text))
    return _FILE_END.sub(words.dot, text)


def replace_addresses(text: str, word: str) -> str:
    """`text` with `word` for each address."""
    for pattern in (_MAIL, _URL, _BARE):
        text = pattern.sub(f" {word} ", text)
    return text


def _mail(match: re.Match[str], words: AddressWords) -> str:
    user = match["user"].replace("_", words.underscore).replace("+", words.plus)
    return f" {_dictated(user, words)}{words.at}{_dictated(match['host'], words)} "


def _url(match: re.Match[str], words: AddressWords) -> str:
    address = match["rest"].rstrip(_TRAILING)
    behind = match["rest"][len(address) :]
    host, *segments = re.split(r"[?#]", address, maxsplit=1)[0].split("/")
    host = host.partition(":")[0].removeprefix("www.")
    segments = [segment for segment in segments if segment]
    if len(segments) > _MAX_SPOKEN_SEGMENTS or not all(map(_SPOKEN_SEGMENT.fullmatch, segments)):
        segments = []
    parts = [_dictated(host, words), *(re.sub("[-_]+", " ", segment) for segment in segments)]
    return f" {words.slash.join(parts)} {behind}"


def _dictated(name: str, words: AddressWords) -> str:
    return name.replace(".", words.dot).replace("-", words.dash)
