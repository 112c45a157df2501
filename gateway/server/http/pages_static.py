"""The browser client's files (clients/browser) as the gateway's port serves them. Pure but for reading them once."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parents[3] / "clients" / "browser"
_CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",  # LICENSE
}
HEADERS: Final = {
    "Cache-Control": "no-cache",  # may be kept, and is asked for again: a page and its modules are of one version
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Only what this server sends, and no script in the page itself. wasm-unsafe-eval: the vendored Opus decoder.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    body: bytes
    content_type: str
    etag: str


def static_file(path: str) -> StaticFile | None:
    """`path` of a URL, without its query; "/" is the page. Only files that are there are looked up, never a path."""
    return _files().get(path)


def paths() -> tuple[str, ...]:
    return tuple(_files())


@cache
def _files() -> dict[str, StaticFile]:
    files = {
        f"/{file.relative_to(_FOLDER).as_posix()}": _read(file)
        for file in _FOLDER.rglob("*")
        if file.is_file() and file.suffix in _CONTENT_TYPES
    }
    if (page := files.get("/index.html")) is not None:
        files["/"] = page
    return files


def _read(file: Path) -> StaticFile:
    body = file.read_bytes()
    return StaticFile(body, _CONTENT_TYPES[file.suffix], f'"{hashlib.sha256(body).hexdigest()[:16]}"')
