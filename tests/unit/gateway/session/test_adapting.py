"""Requests of other vendors' clients that this server cannot follow are left out or shortened, and named."""

from dataclasses import replace

import pytest

from tests.unit.gateway.session.test_opening import INFO
from voicegate.gateway.session.adapting import Adapted, adapted
from voicegate.gateway.session.opening import find_refusal
from voicegate.protocol.messages import Open

MUTE = replace(INFO, max_instruct_chars=0)  # follows no instructions
LONG = "Speak slowly and with some warmth, as to a child."


@pytest.mark.parametrize(
    ("asked", "spoken"),
    [
        (None, None),
        ("en", "en"),
        ("en-GB", "en-GB"),
        ("fr", None),
        ("", None),
        ("en-?", None),
        ("zh", "zh"),
        ("fr-FR,en", "en"),
        ("en-GB,zh", "en-GB"),
        ("fr,de", None),
        ("fr,de,en", None),
    ],
)
def test_a_language_that_is_not_spoken_here_is_left_open(asked: str | None, spoken: str | None) -> None:
    made = adapted(Open(context="a", language=asked), INFO)
    assert made.message.language == spoken
    assert made.not_followed == (("language",) if asked and spoken is None else ())


@pytest.mark.parametrize(
    ("asked", "max_chars", "followed", "notes"),
    [
        (None, 0, None, ()),
        ("  ", 0, None, ()),
        (LONG, 0, None, ("instructions",)),
        (LONG, 200, LONG, ()),
        (LONG, 18, "Speak slowly and", ("instructions (shortened to 18 characters)",)),
        (LONG, 12, "Speak slowly", ("instructions (shortened to 12 characters)",)),
        ("用四川话说这句话", 4, "用四川话", ("instructions (shortened to 4 characters)",)),
        ("You are kind. Speak slowly.<|endofprompt|>", 200, "You are kind. Speak slowly.", ()),
        ("<|endofprompt|>", 0, None, ()),
        ("<| a |>", 200, "a", ()),
    ],
)
def test_instructions(asked: str | None, max_chars: int, followed: str | None, notes: tuple[str, ...]) -> None:
    info = replace(INFO, max_instruct_chars=max_chars)
    made = adapted(Open(context="a", instruct=asked), info)
    assert (made.message.instruct, made.not_followed) == (followed, notes)
    assert find_refusal(made.message, info) is None


def test_a_seed_where_nothing_can_be_repeated() -> None:
    asked = Open(context="a", seed=7, speed=1.5)
    assert adapted(asked, MUTE) == Adapted(asked)
    assert adapted(asked, replace(MUTE, is_reproducible=False)) == Adapted(Open(context="a", speed=1.5), ("seed",))
