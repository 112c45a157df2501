"""What a result file says of the command: all but keys."""

import sys

import pytest

from voicegate.clients.bench.environment import describe

pytestmark = pytest.mark.unit


def test_keys_are_not_in_results(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["/x/python", "bench", "--api-key", "secret", "--api-key=secret", "--header", "xi-api-key: secret", "url"]
    monkeypatch.setattr(sys, "orig_argv", words)
    command = describe()["command"]
    assert command == "python bench --api-key ... --api-key=... --header ... url"
