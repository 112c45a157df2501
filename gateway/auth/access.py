"""Who is let in: nobody without a key, where the server has any; everybody, where it has none. Pure.

Unauthorized   there is no key, or none that this server knows; the message never repeats it
"""

from collections.abc import Sequence

from voicegate.gateway.auth.keyring import Key, Keyring


class Unauthorized(Exception):
    pass


class Access:
    def __init__(self, keyring: Keyring | None = None) -> None:
        """None: no key is asked for."""
        self._keyring = keyring

    @property
    def asks_for_keys(self) -> bool:
        return self._keyring is not None

    def replace(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def identify(self, secrets: Sequence[str]) -> Key | None:
        """By the first of these that is known; None where no key is asked for. Raises Unauthorized."""
        if self._keyring is None:
            return None
        for secret in secrets:
            if (key := self._keyring.find(secret)) is not None:
                return key
        if secrets:
            raise Unauthorized("this key is not known here; ask whoever runs this server for one")
        raise Unauthorized("this server asks for a key: send `Authorization: Bearer KEY`")

    def still_admits(self, key: Key | None) -> bool:
        """Whom it let in before."""
        return self._keyring is None or (key is not None and self._keyring.has(key))
