"""Reading the body of a refusal."""

import pytest

from voicegate.clients.python.refusal import reason_in


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":{"code":"unauthorized","message":"this server asks for a key"}}', "this server asks for a key"),
        (b'{"message": "no"}', "no"),
        (b'{"error": "gone"}', "gone"),
        (b'"gone"', "gone"),
        (b'{"detail": {"status": "x"}}', '{"detail": {"status": "x"}}'),
        (b'{"error": {"code": 7}}', '{"error": {"code": 7}}'),
        (b"[1]", "[1]"),
        (b" Bad gateway \nnginx", "Bad gateway"),
        (b"\xff{", "\N{REPLACEMENT CHARACTER}{"),
        (b"", ""),
        (b"x" * 300, "x" * 200),
    ],
)
def test_its_message_or_else_its_first_line(body: bytes, expected: str) -> None:
    assert reason_in(body) == expected
