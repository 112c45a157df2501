"""A command goes to the core that has its utterance, and of an utterance that has ended nothing is kept."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.support.disaggregated import Driven, hollow_token2wavs
from voicegate.engine.backends.disaggregated.core import DisaggregatedCore
from voicegate.engine.interface import Cancelled, Done, Failed, ListenerReport, SpeakingMode, UtteranceId

TEXT = "One two three four."
COMMANDS: dict[str, Callable[[DisaggregatedCore, UtteranceId], None]] = {
    "push_text": lambda core, name: core.push_text(name, TEXT),
    "flush_text": lambda core, name: core.flush_text(name, "f"),
    "end_text": lambda core, name: core.end_text(name),
    "note_listener": lambda core, name: core.note_listener(name, ListenerReport(played_ms=20)),
    "cancel": lambda core, name: core.cancel(name, None),
    "fail": lambda core, name: core.fail(name, "made to fail"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_one_core_hears_of_a_command_and_none_of_one_for_nobody(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(hollow_token2wavs(3).all_stages)
    names = [driven.say(f"u{place}", TEXT) for place in range(3)]
    heard: list[tuple[int, UtteranceId]] = []
    for number, core in enumerate(driven.several.cores):
        monkeypatch.setattr(core, command, lambda name, *_, number=number: heard.append((number, name)))
    for name in (*names, UtteranceId("unknown")):
        COMMANDS[command](driven.several, name)
    assert sorted(heard) == [(0, names[0]), (1, names[1]), (2, names[2])]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_nothing_is_kept_of_who_has_ended(data: st.DataObject) -> None:
    models = hollow_token2wavs(num_slots=2)
    before = models.held
    driven = Driven(models.all_stages)
    core = driven.several
    names: list[UtteranceId] = []
    for move in data.draw(st.lists(st.sampled_from([*COMMANDS, "say", "say", "step", "step"]), max_size=30)):
        if move == "say":
            names.append(driven.say(f"u{len(names)}", TEXT, mode=data.draw(st.sampled_from(SpeakingMode))))
        elif move == "step":
            for _ in range(data.draw(st.integers(1, 60))):
                driven.step()
        elif names:
            COMMANDS[move](core, data.draw(st.sampled_from(names)))
        assert len(core._owners) == sum(each.num_live for each in core.cores)
        assert set(core._owners) == {name for name, heard in driven.heard.items() if heard.end is None}
    core.fail_all("the end")
    assert core._owners == {}
    assert models.held == before
    assert all(
        sum(isinstance(event, Done | Cancelled | Failed) for event in heard.events) == 1
        for heard in driven.heard.values()
    )


def test_nothing_is_kept_of_one_that_could_not_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(hollow_token2wavs().all_stages)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("made to fail")

    for core in driven.several.cores:
        monkeypatch.setattr(core._reception, "open", broken)
    with capture_logs() as logs:
        driven.say("u0", TEXT)
    assert [line["event"] for line in logs] == ["utterance_not_opened"]
    assert driven.ends() == ["Failed"]
    assert driven.several._owners == {}
