"""Messages where libopus is absent, or its binding."""

import builtins
import sys
from typing import Any

import pytest

from voicegate.engine.audio.opus import load_opuslib
from voicegate.engine.interface import Unsupported


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ModuleNotFoundError("no binding"), r"opuslib-next is not installed: `pip install opuslib-next`"),
        (Exception("no library"), "libopus is not installed: `apt-get install libopus0`"),
    ],
)
def test_what_is_missing_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, error: Exception, remedy: str
) -> None:
    original = builtins.__import__

    def failing(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "opuslib_next":
            raise error
        return original(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "opuslib_next", raising=False)
    monkeypatch.setattr(builtins, "__import__", failing)
    with pytest.raises(Unsupported, match=remedy):
        load_opuslib()
