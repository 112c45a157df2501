"""Observers of contexts: two beside each other are told the same."""

from typing import Any

from voicegate.gateway.session.observer import Both


class Recording:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *said: self.told.append((name, *said))


def test_both_are_told_of_everything() -> None:
    first, second, context = Recording(), Recording(), object()
    both: Any = Both(first, second)  # type: ignore[arg-type]
    both.began(context)
    both.sounded(context)
    both.underruns(2)
    both.ended(context, "done")
    everything = [("began", context), ("sounded", context), ("underruns", 2), ("ended", context, "done")]
    assert first.told == second.told == everything
