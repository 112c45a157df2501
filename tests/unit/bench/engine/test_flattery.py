"""A report's words against itself: each phrase where its reason is."""

from typing import Any

import pytest

from voicegate.bench.engine.flattery import flattery


def run_with(**changes: Any) -> dict[str, Any]:
    run: dict[str, Any] = {
        "config": {"max_waiting_utterances": 32},
        "load": {"tokens_per_s": 30.0},
        "lengths": "natural",
        "voices": ["a", "b"],
    }
    return run | changes


def test_a_run_as_shipped_is_only_without_sockets() -> None:
    assert flattery(run_with()) == ["measured at the engine seam: no sockets, no gateway, no client's network"]


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"load": {"tokens_per_s": None}}, "text given whole"),
        ({"lengths": "limit"}, "length exactly"),
        ({"config": {"max_waiting_utterances": 832}}, "832 utterances may wait for room, as shipped 32"),
        ({"voices": ["a"]}, "one voice"),
        (
            {"config": {"max_waiting_utterances": 32, "max_prompt_trim_tokens": 10}},
            "takes 10 speech tokens after this run's prompts",
        ),
    ],
)
def test_each_advantage_is_named(changes: dict[str, Any], phrase: str) -> None:
    assert phrase in flattery(run_with(**changes))[-1]
