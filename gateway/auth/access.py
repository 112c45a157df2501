"""Access: where the server has a key, only clients with one are let in; where it has none, everybody is. Pure.

Unauthorized   there is no key or token, or none that this server knows; the message never repeats it
"""

from collections.abc import Sequence
from typing import Final

from voicegate.gateway.auth.keyring import Key, Keyring
from voicegate.gateway.auth.tokens import TokenExpired, holder_of, mint

# Different secrets that a request may name: one for each place where some vendor's client puts its key, and to spare.
# Lower refuses a client that names several; higher has a stranger's request take longer.
_MAX_SECRETS: Final = 16


class Unauthorized(Exception):
    pass


class Access:
    def __init__(self, keyring: Keyring | None, token_secret: bytes) -> None:
        """`keyring` None: no key is asked for."""
        self._keyring = keyring
        self._token_secret = token_secret

    @property
    def asks_for_keys(self) -> bool:
        return self._keyring is not None

    @property
    def lets_nobody_in(self) -> bool:
        return self._keyring is not None and not self._keyring.keys

    def replace(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def identify(self, secrets: Sequence[str], now_s: float) -> Key | None:
        """By the first of these that is a key or a token of one; None where none is asked for. Raises Unauthorized."""
        if self._keyring is None:
            return None
        if not secrets:
            raise Unauthorized("this server asks for a key: send `Authorization: Bearer KEY`")
        if len(secrets) > _MAX_SECRETS:
            raise Unauthorized(f"{len(secrets)} keys in one request are too many; send the one that is yours")
        if (key := self.key_among(secrets)) is not None:
            return key
        has_expired = False
        for secret in secrets:
            try:
                holder = holder_of(secret, self._keyring.named, now_s, self._token_secret)
            except TokenExpired:
                has_expired = True
            else:
                if holder is not None:
                    return holder
        if has_expired:
            raise Unauthorized("this token has expired; ask for another (POST /v1/tokens)")
        raise Unauthorized("this key is not known here; ask the operator of this server for one")

    def key_among(self, secrets: Sequence[str]) -> Key | None:
        """Tokens are none."""
        found = (self._keyring.find(secret) for secret in secrets) if self._keyring is not None else ()
        return next((key for key in found if key is not None), None)

    def mint(self, key: Key, expires_s: int) -> str:
        return mint(key, expires_s, self._token_secret)

    def still_admits(self, key: Key | None) -> bool:
        """Whom it let in before."""
        return self._keyring is None or self.current(key) is not None

    def knows(self, name: str) -> bool:
        """Whether a key of this name is let in."""
        return self._keyring is None or self._keyring.named(name) is not None

    def current(self, key: Key | None) -> Key | None:
        """The key as it is now: what its holders may have can have changed. None: there is none, or none any more."""
        return None if self._keyring is None or key is None else self._keyring.current(key)
