"""The browser client's files: only they, with headers under which they may run."""

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from voicegate.gateway.server.http import Status, respond
from voicegate.gateway.server.pages_static import HEADERS, static_file
from voicegate.gateway.server.sites import Sites

pytestmark = pytest.mark.unit

READY = Status(unready_reason=None, info=None)


def get(path: str, **headers: str) -> Response:
    named = Headers({name.replace("_", "-"): value for name, value in headers.items()})
    response = respond(Request(path, named, "GET"), READY, Sites())
    assert response is not None
    return response


def test_the_player_and_all_that_it_imports_are_there() -> None:
    for name in ("player.js", "worker.js", "worklet.js", "wire.js", "vendor/opus-decoder/opus-decoder.min.js"):
        response = get(f"/player/{name}?v=1")
        assert (response.status_code, response.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
        assert len(response.body) == int(response.headers["Content-Length"]) > 0
        assert HEADERS.items() <= dict(response.headers.raw_items()).items()
    assert b"libopus" in get("/player/vendor/opus-decoder/LICENSE").body


@pytest.mark.parametrize(
    "path",
    ["/player", "/player/", "/player/../../README.md", "/../pyproject.toml", "//etc/passwd", ""],
)
def test_nothing_else_is(path: str) -> None:
    assert static_file(path) is None


def test_a_file_that_is_known_is_not_sent_again() -> None:
    etag = get("/player/player.js").headers["ETag"]
    again = get("/player/player.js", If_None_Match=etag)
    assert (again.status_code, again.body, again.headers["ETag"]) == (304, b"", etag)
    assert get("/player/player.js", If_None_Match='"another"').status_code == 200


def test_the_page_is_for_those_who_read_html() -> None:
    page = get("/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "Accept" in page.headers.get_all("Vary")
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        assert get("/", **headers).headers["Content-Type"].startswith("text/plain")
