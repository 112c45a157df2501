"""The answer to what is no request that one could read, as the bytes that go out. Pure."""

from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final

from voicegate import __version__

SERVER: Final = f"voicegate/{__version__}"


def plain_answer(status: HTTPStatus, line: str) -> bytes:
    headers: dict[str, Any] = {
        "Date": formatdate(usegmt=True),
        "Server": SERVER,
        "Connection": "close",
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": len(line) + 1,
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", f"{line}\n"]).encode()
