"""A call that its user forgot to await sends nothing. Python says so, at the user's own line, for each of them."""

import inspect
import warnings
from typing import Any

import pytest

from voicegate.clients.python import Context, Gate, SoundCard

ARGUMENTS = {"Context.say": ["Hello."], "Context.report_playback": [0]}
NOT_CALLED_BY_USERS = {"wait_opened"}  # the link's own
COROUTINES = {
    f"{kind.__name__}.{name}": method
    for kind in (Context, Gate, SoundCard)
    for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction)
    if not name.startswith("_") and name not in NOT_CALLED_BY_USERS
}


@pytest.mark.parametrize("name", COROUTINES)
def test_it_is_told_at_once_and_names_the_users_line(name: str) -> None:
    names: dict[str, Any] = {"call": COROUTINES[name], "arguments": ARGUMENTS.get(name, [])}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        exec(compile("before = 1\ncall(None, *arguments)\nassert told", "users.py", "exec"), {**names, "told": told})
    (warning,) = told
    assert (warning.filename, warning.lineno, warning.category) == ("users.py", 2, RuntimeWarning)
    assert str(warning.message) == f"coroutine '{name}' was never awaited"


def test_those_that_end_speech_and_playback_are_among_them() -> None:
    assert COROUTINES.keys() >= {"Context.say", "Context.flush", "Context.end", "Context.cancel", "SoundCard.drained"}
