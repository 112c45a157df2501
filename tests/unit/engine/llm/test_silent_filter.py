"""The silent-token filter against upstream's output, under every split of the stream."""

import json

import pytest

from tests.support.golden import COSYVOICE3_DIR
from voicegate.engine.llm.silent_filter import SilentTokenFilter

GOLDEN = json.loads((COSYVOICE3_DIR / "silent_filter.json").read_text())


@pytest.mark.parametrize("step", range(1, len(GOLDEN["input"]) + 1))
def test_equals_upstream_at_every_split(step: int) -> None:
    silent_filter = SilentTokenFilter(GOLDEN["silent_tokens"], GOLDEN["max_silent_token_num"])
    tokens = GOLDEN["input"]
    kept = [silent_filter.keep(tokens[start : start + step]) for start in range(0, len(tokens), step)]
    assert [token for part in kept for token in part] == GOLDEN["output"]


def test_a_run_of_zero_drops_every_silent_token() -> None:
    assert SilentTokenFilter({1}, 0).keep([1, 5, 1, 1, 6]) == (5, 6)


def test_silence_waits_for_the_first_sound() -> None:
    silent_filter = SilentTokenFilter({1, 2}, 2)
    assert [silent_filter.keep(tokens) for tokens in ([1], [2, 1], [], [5, 1], [2, 1])] == [
        (),
        (),
        (),
        (1, 2, 5, 1),
        (2,),
    ]
    assert silent_filter.num_seen == 7
