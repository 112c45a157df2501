"""Reads a gateway's address, and finds its key. Pure, but for the environment. Raises InvalidInput."""

import os
import re
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, urlsplit

from voicegate.clients.python.errors import InvalidInput
from voicegate.protocol.messages import SESSION_PARAMETER, STREAM_PATH

_KEY_VARIABLE: Final = "VOICEGATE_API_KEY"
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
# urlsplit takes [::1].example.com for ::1.
_NETLOC: Final = re.compile(r"(?:[^@]*@)?(?:\[[^\[\]]+\]|[^\[\]:@]+)(?::[0-9]*)?")
_USER: Final = re.compile(r"(?<=//)[^/]*@|^[^/]*@")


def stream_url(url: str) -> str:
    """`url` with ws for http, and the protocol's path where it names none, or below a folder ("/voice/")."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # checked only when asked for
    except ValueError as error:
        raise InvalidInput(f"{shown_url(url)!r} is no address: {error}") from error
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not _NETLOC.fullmatch(parts.netloc):
        raise InvalidInput(f"{shown_url(url)!r} is no gateway's address; it looks like ws://127.0.0.1:8080")
    folder, _, name = parts.path.rpartition("/")
    path = parts.path if name else f"{folder}{STREAM_PATH}"
    return parts._replace(scheme=scheme, path=path).geturl()


def path_beside(url: str, path: str) -> str:
    """A path of the gateway whose stream `url` is: behind a proxy it may be in a folder."""
    folder, _, _ = urlsplit(stream_url(url)).path.rpartition(STREAM_PATH)
    return folder + path


def resuming_url(url: str, session: str) -> str:
    """`url` with the session that is to be resumed, for balancers on the way: its server is found by its id."""
    parts = urlsplit(stream_url(url))
    query = [item for item in parts.query.split("&") if item and not item.startswith(f"{SESSION_PARAMETER}=")]
    return parts._replace(query="&".join([*query, f"{SESSION_PARAMETER}={quote(session, safe='')}"])).geturl()


def shown_url(url: str) -> str:
    """`url`, or what was meant for one, as it may stand in messages and logs: its user and its query may hold a key."""
    return _USER.sub("", _QUERY.sub("", url), count=1)


def key_headers(api_key: str | None) -> dict[str, str]:
    """Headers of a request with this key, or the environment's."""
    key = os.environ.get(_KEY_VARIABLE) if api_key is None else api_key
    if not key:
        return {}
    if not all("!" <= char <= "~" for char in key):
        raise InvalidInput("an API key is printable ASCII without spaces; this one is not")
    return {"Authorization": f"Bearer {key}"}


def tls_for(url: str, ca_file: Path | None) -> ssl.SSLContext | None:
    """None: `url` is without TLS. `ca_file`: of those who sign the server's certificate, in place of the system's."""
    if urlsplit(url).scheme not in ("wss", "https"):
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # what ssl raises is one too
        raise InvalidInput(f"{ca_file} holds no certificates in PEM ({error.strerror or error})") from error


def untrusted(where: str, error: ssl.SSLCertVerificationError) -> str:
    """Words for a certificate that none of those have signed."""
    reason = error.verify_message
    return f"{where}: its certificate is not to be trusted ({reason}); name its authority by ca_file, --ca-file"


def proxy_for(url: str) -> Literal[True] | None:
    """The environment's proxy, but never to this machine, whatever no_proxy says."""
    host = urlsplit(url).hostname or ""
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return None if is_loopback else True
