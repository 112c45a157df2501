"""The state machines against upstream's traces (tokens replayed, no network), and what must hold for any text."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import load_arrays
from tests.unit.engine.llm.support import (
    END_OF_PROMPT,
    EOS,
    FILL,
    SOS,
    TASK,
    Recording,
    Sampler,
    advance_once,
    fed_ids,
    golden_llm_config,
    golden_prompt,
    ids,
    run_bistream,
    run_unistream,
    run_until_stuck,
    scripted,
)
from voicegate.engine.llm.backend import InvalidRequest, LlmPrompt
from voicegate.engine.llm.bistream import Bistream, BistreamPolicy
from voicegate.engine.llm.feed import SequenceState, speech_rows
from voicegate.engine.llm.sequence import Growing, Unistream
from voicegate.engine.model.config import StopRule

CONFIG = golden_llm_config()
GOLDEN = load_arrays("llm.npz")
# trace -> (sampling call, special id that was returned there)
SPECIALS = {
    "bi_normal": [(60, EOS)],
    "bi_earlyfill": [(4, FILL), (55, EOS)],
    "bi_exhaust": [(60, EOS)],
    "bi_noprompt": [(40, EOS)],
    "bi_shorttext": [(10, EOS)],
    "bi_eos_in_stream": [(2, EOS)],
    "bi_prompt30": [(70, EOS)],
}
# Where upstream raises, speaks before there is text, or drops prompt speech, ROBUST does something else.
ROBUST_AS_UPSTREAM = [trace for trace in SPECIALS if trace not in ("bi_eos_in_stream", "bi_noprompt", "bi_shorttext")]
INSTRUCTION = (11, END_OF_PROMPT)


def replay(trace: str) -> Sampler:
    tokens = GOLDEN[f"{trace}.yielded"].tolist()
    for call, special in SPECIALS[trace]:
        tokens.insert(call, special)
    return scripted(tokens)


def by_call(seed: int) -> Sampler:
    """Arbitrary tokens that depend only on the number of the call, a special one now and then."""

    def sample(_: object, call: int) -> int:
        value = hash((seed, call)) % 1000
        return {0: EOS, 1: FILL, 2: 6700}.get(value % 40, value)

    return sample


# --- unistream --------------------------------------------------------------------------------------------


def uni(text: tuple[int, ...] | None = None, **options: Any) -> Unistream:
    return Unistream(CONFIG, golden_prompt(GOLDEN, "uni"), ids(GOLDEN["uni.text"]) if text is None else text, **options)


def test_unistream_feeds_what_upstream_feeds() -> None:
    recording = run_unistream(uni(max_tokens=24), scripted(GOLDEN["uni.tokens"].tolist()))
    assert [int(row >= CONFIG.vocab_size) for row in recording.fed] == GOLDEN["uni.fed_kind"].tolist()
    assert fed_ids(CONFIG, recording.fed) == GOLDEN["uni.fed_ids"].tolist()
    assert recording.fed_lens == GOLDEN["uni.fed_lens"].tolist()
    assert recording.yielded == GOLDEN["uni.tokens"].tolist()


def test_eos_ends_unistream_before_its_minimum() -> None:
    sequence = uni()
    recording = run_unistream(sequence, scripted([*GOLDEN["uni.tokens"].tolist()[:3], EOS]))
    assert recording.yielded == GOLDEN["uni.eos6562_at_call3"].tolist()
    assert recording.masked == GOLDEN["uni.masked_ids_per_step"].tolist()
    assert sequence.state is SequenceState.FINISHED


@pytest.mark.parametrize("stop", [SOS, EOS, TASK, FILL, 6565, 6700, 6760])
def test_every_special_id_ends_unistream(stop: int) -> None:
    sequence = uni()
    recording = run_unistream(sequence, scripted([7] * 20 + [stop]))
    assert len(recording.yielded) == GOLDEN["uni.stop6700_at_call20_n"]
    assert recording.masked == GOLDEN["uni.masked_by_call"].tolist()
    assert sequence.state is SequenceState.FINISHED


@pytest.mark.parametrize(("max_tokens", "length"), [(None, int(GOLDEN["uni.maxlen_text3_n"])), (5, 5)])
def test_unistream_is_truncated_at_the_lower_of_both_limits(max_tokens: int | None, length: int) -> None:
    sequence = uni(ids(GOLDEN["uni.text"])[:3], max_tokens=max_tokens)
    assert run_unistream(sequence, scripted([7] * 100)).yielded == [7] * length
    assert sequence.state is SequenceState.TRUNCATED


def test_unistream_without_text_is_over_at_once() -> None:
    sequence = uni(())
    assert sequence.feed is None
    assert sequence.state is SequenceState.FINISHED


def test_the_end_of_the_prompt_is_wanted() -> None:
    """Unistream's in either text."""
    with pytest.raises(InvalidRequest, match="endofprompt"):
        Unistream(CONFIG, LlmPrompt((1, 2)), (3, 4))
    with pytest.raises(InvalidRequest, match="endofprompt"):
        Bistream(CONFIG, LlmPrompt((1, 2)))
    Unistream(CONFIG, LlmPrompt(), (*INSTRUCTION, 4))


@pytest.mark.parametrize("change", [{"needs_end_of_prompt": False}, {"end_of_prompt_id": None}])
def test_a_model_that_may_do_without_instructions_takes_texts_of_both_kinds(change: dict[str, Any]) -> None:
    config = replace(CONFIG, **change)
    for prompt_text in ((1, 2), (*INSTRUCTION, 1, 2)):
        sequence = Unistream(config, LlmPrompt(prompt_text, (7, 8)), (3, 4))
        assert fed_ids(CONFIG, sequence.layout) == [SOS, *prompt_text, 3, 4, TASK, 7, 8]
        # Without an instruction to end, the prompt's text comes in blocks of two.
        known = (1, 2) if config.end_of_prompt_id is None else prompt_text
        bistream = Bistream(replace(config, mix_ratio=(2, 3)), LlmPrompt(known, (7, 8, 9)))
        bistream.push_text([3])
        assert bistream.feed is not None
        assert fed_ids(CONFIG, bistream.feed.rows) == [SOS, *known, 7, 8, 9]


EOS_ALONE = StopRule(is_eos_alone=True, min_tokens_per_text_token=0, max_tokens_per_text_token=None, max_tokens=7)


@pytest.mark.parametrize("is_growing", [False, True])
def test_where_eos_alone_ends_speech_other_special_ids_are_fed_and_not_heard(is_growing: bool) -> None:
    config = replace(CONFIG, stop=EOS_ALONE)
    prompt, text = LlmPrompt(INSTRUCTION), (3, 4)
    sequence = Growing(config, prompt) if is_growing else Unistream(config, prompt, text)
    if isinstance(sequence, Growing):
        sequence.read(text, until=None)
    recording = Recording()
    run_until_stuck(sequence, scripted([10, FILL, 11, EOS]), recording)
    assert (recording.yielded, sequence.state) == ([10, 11], SequenceState.FINISHED)
    assert recording.fed[-3:] == speech_rows(CONFIG, (10, FILL, 11)).tolist()
    assert recording.masked == [-1] * 4  # no least length


def test_what_is_not_heard_counts_against_the_length() -> None:
    sequence = Unistream(replace(CONFIG, stop=EOS_ALONE), LlmPrompt(INSTRUCTION), (3, 4))
    assert run_unistream(sequence, scripted([FILL] * 6 + [5] * 9)).yielded == [5]
    assert sequence.state is SequenceState.TRUNCATED


def test_what_is_not_heard_does_not_count_towards_a_pause() -> None:
    """So many speech tokens are asked for as the flow needs, and it never gets these."""
    sequence = Growing(replace(CONFIG, stop=EOS_ALONE), LlmPrompt(INSTRUCTION))
    heard = []
    for until in (3, 4, 5):
        sequence.read((3, 4), until=until)
        recording = Recording()
        run_until_stuck(sequence, scripted([10, FILL, 11]), recording)
        assert sequence.state is SequenceState.WAITING
        heard.append(recording.yielded)
    assert heard == [[10, 11], [10], [10]]
    with pytest.raises(InvalidRequest, match="4 tokens are spoken; a reading until 4 would add none"):
        sequence.read((3, 4), until=4)


def test_a_limit_by_text_counts_from_what_was_spoken_before_it() -> None:
    assert StopRule().max_length(3, num_spoken=40) == 100
    assert StopRule(max_tokens=70).max_length(3, num_spoken=40) == 70
    with pytest.raises(ValueError, match="speech might never end"):
        StopRule(max_tokens_per_text_token=None)


# --- bistream ---------------------------------------------------------------------------------------------


def bi(trace: str, policy: BistreamPolicy) -> Bistream:
    return Bistream(CONFIG, golden_prompt(GOLDEN, trace), policy=policy)


@pytest.mark.parametrize(
    ("policy", "trace"),
    [(BistreamPolicy.UPSTREAM, trace) for trace in SPECIALS]
    + [(BistreamPolicy.ROBUST, trace) for trace in ROBUST_AS_UPSTREAM],
)
def test_bistream_equals_the_traces(policy: BistreamPolicy, trace: str) -> None:
    """Robust those that show no bug."""
    sequence = bi(trace, policy)
    run_bistream(sequence, ids(GOLDEN[f"{trace}.text"]), replay(trace)).assert_equals(GOLDEN, trace)
    if GOLDEN[f"{trace}.error"]:
        assert sequence.state is SequenceState.FAILED
        assert str(GOLDEN[f"{trace}.error"]) == "should not get token 6562"
        assert "6562" in str(sequence.failure)
    else:
        assert (sequence.state, sequence.failure) == (SequenceState.FINISHED, None)


@pytest.mark.parametrize("special", [SOS, EOS, TASK, 6700])
def test_robust_policy_takes_any_special_token_in_a_block_for_fill(special: int) -> None:
    text = ids(GOLDEN["bi_earlyfill.text"])
    with_fill = GOLDEN["bi_earlyfill.yielded"].tolist()
    with_fill.insert(4, special)
    sequence = bi("bi_earlyfill", BistreamPolicy.ROBUST)
    run_bistream(sequence, text, scripted([*with_fill, EOS])).assert_equals(GOLDEN, "bi_earlyfill")
    assert FILL in sequence.decoded
    assert special not in sequence.decoded


@pytest.mark.parametrize(("policy", "state"), [("upstream", SequenceState.FAILED), ("robust", SequenceState.FINISHED)])
def test_a_special_token_other_than_eos_at_the_end(policy: str, state: SequenceState) -> None:
    sequence = Bistream(CONFIG, LlmPrompt(INSTRUCTION, (1,) * 15), policy=BistreamPolicy(policy))
    recording = run_bistream(sequence, [5], scripted([8, 9, 6700]))
    assert recording.yielded == [8, 9]
    assert sequence.state is state


@pytest.mark.parametrize(("policy", "repeated"), [("upstream", [20, 21, 22, 23, 24]), ("robust", [])])
def test_a_text_block_that_was_answered_by_no_speech(policy: str, repeated: list[int]) -> None:
    """Its fill comes at once, and upstream then feeds the whole block again before the remaining text."""
    prompt = LlmPrompt((*INSTRUCTION, *range(40, 45)), (1,) * 15)
    sequence = Bistream(CONFIG, prompt, policy=BistreamPolicy(policy))
    recording = run_bistream(sequence, range(20, 27), scripted([*range(15), FILL, 30, EOS]))
    fed = fed_ids(CONFIG, recording.fed)
    start = [SOS, *INSTRUCTION, *range(40, 45), *[1] * 15]
    assert fed == [*start, *range(15), 20, 21, 22, 23, 24, *repeated, 25, 26, TASK, 30]


@pytest.mark.parametrize(
    ("policy", "fed_lens", "fed"),
    [
        ("upstream", [3, 1, 1], [*range(15), *range(20, 25)]),  # the instruction, then a block that answers no text
        ("robust", [8, 1, 1], [*range(20, 25), *range(15)]),  # as in training
    ],
)
def test_without_prompt_speech_robust_waits_for_the_first_text_block(
    policy: str, fed_lens: list[int], fed: list[int]
) -> None:
    sequence = Bistream(CONFIG, LlmPrompt(INSTRUCTION), policy=BistreamPolicy(policy))
    recording = run_bistream(sequence, range(20, 27), scripted([*range(15), EOS]))
    assert recording.fed_lens[:3] == fed_lens
    assert fed_ids(CONFIG, recording.fed)[:23] == [SOS, *INSTRUCTION, *fed]


def test_robust_without_prompt_speech_says_short_text_in_the_final_phase() -> None:
    sequence = Bistream(CONFIG, LlmPrompt(INSTRUCTION))
    sequence.push_text([5, 6, 7, 8])
    assert sequence.state is SequenceState.WAITING
    sequence.end_text()
    assert sequence.feed is not None
    assert fed_ids(CONFIG, sequence.feed.rows) == [SOS, *INSTRUCTION, 5, 6, 7, 8, TASK]


@pytest.mark.parametrize(
    ("num_prompt_text", "num_prompt_speech", "num_text"), [(0, 15, 4), (3, 3, 1), (7, 37, 2), (7, 60, 12)]
)
def test_robust_keeps_the_prompt_speech_of_text_too_short_to_interleave(
    num_prompt_text: int, num_prompt_speech: int, num_text: int
) -> None:
    """Then it feeds what unistream would; upstream drops what it had not interleaved."""
    prompt_text = (*INSTRUCTION, *range(200, 200 + num_prompt_text))
    prompt = LlmPrompt(prompt_text, tuple(range(300, 300 + num_prompt_speech)))
    text = tuple(range(50, 50 + num_text))
    sequence = Bistream(CONFIG, prompt)
    sequence.push_text(text)
    assert sequence.state is SequenceState.WAITING
    sequence.end_text()
    unistream = Unistream(CONFIG, prompt, text)
    assert sequence.feed is not None
    assert unistream.feed is not None
    assert sequence.feed.rows.tolist() == unistream.feed.rows.tolist()


def test_robust_policy_limits_the_final_phase() -> None:
    sequence = Bistream(CONFIG, LlmPrompt(INSTRUCTION, (1,) * 15))
    recording = run_bistream(sequence, [5, 6], scripted([8] * 1000))
    assert len(recording.yielded) == 2 * 20
    assert sequence.state is SequenceState.TRUNCATED


def test_max_tokens_ends_inside_a_block_too() -> None:
    sequence = Bistream(CONFIG, LlmPrompt(INSTRUCTION), max_tokens=4)
    sequence.push_text(range(5))
    recording = Recording()
    while sequence.feed is not None:
        advance_once(sequence, scripted([8] * 10), recording)
    assert recording.yielded == [8] * 4
    assert sequence.state is SequenceState.TRUNCATED


def test_no_text_at_all_gives_no_speech_under_robust() -> None:
    sequence = Bistream(CONFIG, LlmPrompt(INSTRUCTION, (1, 2)))
    assert sequence.state is SequenceState.WAITING
    sequence.end_text()
    assert sequence.state is SequenceState.FINISHED
    assert sequence.feed is None


def test_text_after_its_end_is_refused() -> None:
    sequence = Bistream(CONFIG, LlmPrompt(INSTRUCTION))
    sequence.end_text()
    sequence.end_text()
    with pytest.raises(InvalidRequest, match="after its end"):
        sequence.push_text([1])


@given(
    prompt_text=st.lists(st.integers(0, 100), max_size=12),
    num_prompt_speech=st.integers(0, 40),
    text=st.lists(st.integers(0, 100), max_size=25),
    cuts=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), max_size=12),
    policy=st.sampled_from(BistreamPolicy),
    seed=st.integers(0, 10_000),
)
def test_when_text_arrives_changes_nothing(
    prompt_text: list[int],
    num_prompt_speech: int,
    text: list[int],
    cuts: list[tuple[int, int]],
    policy: BistreamPolicy,
    seed: int,
) -> None:
    """`cuts`: push so many text tokens, then advance so many times; the rest, and the end, come at once."""
    prompt = LlmPrompt((*INSTRUCTION, *prompt_text), (1,) * num_prompt_speech)
    expected_sequence = Bistream(CONFIG, prompt, policy=policy, max_tokens=200)
    expected = run_bistream(expected_sequence, text, by_call(seed))

    sequence = Bistream(CONFIG, prompt, policy=policy, max_tokens=200)
    recording = Recording()
    rest = text
    for num_pushed, num_advanced in cuts:
        sequence.push_text(rest[:num_pushed])
        rest = rest[num_pushed:]
        for _ in range(num_advanced):
            if sequence.feed is not None:
                advance_once(sequence, by_call(seed), recording)
    sequence.push_text(rest)
    sequence.end_text()
    while sequence.feed is not None:
        advance_once(sequence, by_call(seed), recording)

    assert recording == expected
    assert sequence.state is expected_sequence.state
    assert sequence.decoded == expected_sequence.decoded


@given(
    num_prompt_text=st.integers(0, 12),
    num_prompt_speech=st.integers(0, 60),
    num_text=st.integers(0, 40),
    seed=st.integers(0, 10_000),
)
def test_robust_bistream_always_ends_and_feeds_all_text_in_order(
    num_prompt_text: int, num_prompt_speech: int, num_text: int, seed: int
) -> None:
    prompt_text = tuple(range(200, 200 + num_prompt_text))
    text = tuple(range(1000, 1000 + num_text))
    sequence = Bistream(CONFIG, LlmPrompt((*INSTRUCTION, *prompt_text), (1,) * num_prompt_speech))
    recording = run_bistream(sequence, text, by_call(seed))
    assert sequence.state in (SequenceState.FINISHED, SequenceState.TRUNCATED)
    fed_text = tuple(row for row in recording.fed if row < CONFIG.vocab_size)
    assert fed_text == ((*INSTRUCTION, *prompt_text, *text) if text else ())
    assert all(token < CONFIG.speech_token_size for token in recording.yielded)
