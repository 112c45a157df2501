"""Tokens that a key's holder has made for a browser: they say whose they are and until when, and are signed. Pure.

They are not kept anywhere. The key's hash is signed along, so a token ends with its key at the latest.
"""

import base64
import binascii
import re
from collections.abc import Callable
from hmac import compare_digest, digest
from typing import Final

from voicegate.gateway.auth.keyring import Key

_TOKEN: Final = re.compile(r"vgt_([0-9]{1,12})\.([A-Za-z0-9_-]{1,100})\.([A-Za-z0-9_-]{43})")


class TokenExpired(Exception):
    pass


def mint(key: Key, expires_s: int, secret: bytes) -> str:
    """`expires_s`: Unix time. Made of what may stand in a URL and in a subprotocol."""
    return f"vgt_{expires_s}.{_encoded(key.name.encode())}.{_encoded(_signature(key, expires_s, secret))}"


def holder_of(token: str, named: Callable[[str], Key | None], now_s: float, secret: bytes) -> Key | None:
    """Whose it is; None: it is no token, or no one's, or forged. Raises TokenExpired for one that was good."""
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        return None
    try:
        name = base64.urlsafe_b64decode(parts[2] + "=" * (-len(parts[2]) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    key, expires_s = named(name), int(parts[1])
    if key is None or not compare_digest(_encoded(_signature(key, expires_s, secret)), parts[3]):
        return None
    if now_s >= expires_s:
        raise TokenExpired
    return key


def _signature(key: Key, expires_s: int, secret: bytes) -> bytes:
    return digest(secret, b"voicegate token " + key.digest + f" {expires_s} {key.name}".encode(), "sha256")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
