"""API keys: who has one, told by its hash, and what each may hold at once. Pure.

A key file has a line for each: `NAME sha256:HEX sockets=3 utterances=2`. Keys are long random numbers, so a plain hash
cannot be guessed back. Raises ConfigError for lines that cannot be read; it never repeats them, because somebody may
have written the key itself there.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Final

from voicegate.gateway.config_fields import ConfigError

# So that a search through files and logs finds a key that has got there.
_PREFIX: Final = "vg_"
_KEY_BYTES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH: Final = re.compile(r"sha256:([0-9a-f]{64})")
_ALLOWANCE: Final = re.compile(r"(\w+)=([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class Allowance:
    """Limits of all holders of one key together. None: no limit."""

    sockets: int | None = None
    contexts: int | None = None
    utterances: int | None = None


UNLIMITED: Final = Allowance()
_ALLOWANCES: Final = tuple(item.name for item in fields(Allowance))


@dataclass(frozen=True, slots=True)
class Key:
    """Its hash, not itself."""

    name: str  # for people and logs
    digest: bytes = field(repr=False)
    allowance: Allowance = UNLIMITED


class Keyring:
    def __init__(self, keys: Iterable[Key] = ()) -> None:
        """Takes entries of different names and digests."""
        self._by_name = {key.name: key for key in keys}
        self._by_digest = {key.digest: key for key in self._by_name.values()}

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(self._by_name.values())

    def find(self, secret: str) -> Key | None:
        """How long it takes tells of a digest at most, from which no one comes to its secret."""
        return self._by_digest.get(digest_of(secret))

    def named(self, name: str) -> Key | None:
        return self._by_name.get(name)

    def current(self, key: Key) -> Key | None:
        """As it is now: what it may hold can have changed. None: it is not let in any more."""
        own = self._by_name.get(key.name)
        return own if own is not None and own.digest == key.digest else None


def new_secret() -> str:
    return _PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def check_name(name: str) -> str:
    """Raises ConfigError."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name[:80]!r} is no name of a key: up to 64 letters, digits, _ . and -, no sign first")
    return name


def parse_keys(text: str, source: str) -> tuple[Key, ...]:
    keys: list[Key] = []
    known: set[str | bytes] = set()
    for _, key in parse_lines(text, source):
        if not known.isdisjoint((key.name, key.digest)):
            raise ConfigError(f"{source}: the key {key.name} is there twice, or under two names; take one line away")
        known.update((key.name, key.digest))
        keys.append(key)
    return tuple(keys)


def parse_lines(text: str, source: str) -> Iterator[tuple[int, Key]]:
    """With the number of each line, from 0."""
    for num, line in enumerate(text.splitlines()):
        words = line.partition("#")[0].split()
        if words:
            yield num, _parse_key(words, f"{source}, line {num + 1}")


def key_line(key: Key) -> str:
    allowances = [f"{name}={limit}" for name in _ALLOWANCES if (limit := getattr(key.allowance, name)) is not None]
    return " ".join((key.name, f"sha256:{key.digest.hex()}", *allowances))


def _parse_key(words: list[str], source: str) -> Key:
    name, *rest = words
    digest = _HASH.fullmatch(rest[0]) if rest else None
    if _NAME.fullmatch(name) is None or digest is None:
        raise ConfigError(f"{source} is not NAME sha256:HEX; `voicegate keys add NAME` makes a key and its line")
    limits: dict[str, int] = {}
    for word in rest[1:]:
        limit = _ALLOWANCE.fullmatch(word)
        if limit is None or limit[1] not in _ALLOWANCES:
            raise ConfigError(f"{source}: after the hash there may be {'=N, '.join(_ALLOWANCES)}=N")
        limits[limit[1]] = int(limit[2])
    return Key(name, bytes.fromhex(digest[1]), Allowance(**limits))
