"""Web and mail addresses -> how they are dictated: "example dot com". Pure. Digits in them are left to the numbers."""

import re
from typing import Final

_LABEL: Final = "[A-Za-z0-9-]{1,63}"
_TOP_LEVEL: Final = "com|org|net|edu|gov|io|ai|dev|app|co|me|info|uk|us|eu|de|fr|ca|au|jp|cn|in"
_MAIL: Final = re.compile(
    rf"(?<![\w.+-])(?P<user>[A-Za-z0-9][A-Za-z0-9._+-]{{0,63}})@(?P<host>{_LABEL}(?:\.{_LABEL}){{1,5}})"
)
_URL: Final = re.compile(r"(?:\bhttps?://|\bwww\.)(?P<rest>[^\s<>\"]{1,2000})")
_BARE: Final = re.compile(
    rf"(?<![\w.@/-])(?P<rest>{_LABEL}(?:\.{_LABEL}){{0,4}}\.(?:{_TOP_LEVEL})(?:/[^\s<>\"]{{0,2000}}|\b(?![\w-])))"
)
_TRAILING: Final = ".,;:!?)]}'*_~"
# Longer paths, and ones that are no words, are left out: nobody could follow them.
_MAX_SPOKEN_SEGMENTS: Final = 3
_SPOKEN_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]{1,20}")


def read_addresses(text: str) -> str:
    if "@" in text:
        text = _MAIL.sub(_mail, text)
    if "." in text or "://" in text:
        text = _BARE.sub(_url, _URL.sub(_url, text))
    return text


def _mail(match: re.Match[str]) -> str:
    user = match["user"].replace("_", " underscore ").replace("+", " plus ")
    return f" {_dictated(user)} at {_dictated(match['host'])} "


def _url(match: re.Match[str]) -> str:
    address = match["rest"].rstrip(_TRAILING)
    behind = match["rest"][len(address) :]
    host, *segments = re.split(r"[?#]", address, maxsplit=1)[0].split("/")
    host = host.partition(":")[0].removeprefix("www.")
    segments = [segment for segment in segments if segment]
    if len(segments) > _MAX_SPOKEN_SEGMENTS or not all(map(_SPOKEN_SEGMENT.fullmatch, segments)):
        segments = []
    words = [_dictated(host), *(re.sub("[-_]+", " ", segment) for segment in segments)]
    return f" {' slash '.join(words)} {behind}"


def _dictated(name: str) -> str:
    return name.replace(".", " dot ").replace("-", " dash ")
