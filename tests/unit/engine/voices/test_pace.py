"""The pace of a voice: fitted to sentences that it said, written into its file's header and read back."""

import pytest

from voicegate.engine.voices.pace import MIN_SENTENCES, Said, VoicePace, fit, pace_in


def test_a_voice_that_always_speaks_alike_may_say_all_that_is_known() -> None:
    found = fit([Said(num_letters, 2 * num_letters) for num_letters in range(10, 40)])
    assert found.pace == VoicePace(tokens_per_letter=2.0, growing_share=1.0)
    assert (found.relative[0], found.relative_at(0.95)) == (1.0, 1.0)


def test_the_share_is_the_pace_of_the_fastest_twentieth() -> None:
    tokens = [*range(80, 121)]  # of sentences of 50 letters: 1.6 to 2.4 a letter, 2.0 in the mean
    found = fit([Said(50, num_tokens) for num_tokens in tokens])
    assert found.pace == VoicePace(tokens_per_letter=2.0, growing_share=0.82)
    assert sum(each < 0.82 for each in found.relative) == 2, "of 41"
    assert (found.relative[0], found.relative[-1]) == (0.8, 1.2)


def test_long_sentences_weigh_more() -> None:
    found = fit([Said(10, 40)] * 10 + [Said(100, 200)] * 10)
    assert found.pace.tokens_per_letter == pytest.approx(2400 / 1100, abs=1e-4)


def test_a_share_stays_within_what_makes_sense() -> None:
    assert fit([Said(100, 10)] * 5 + [Said(100, 200)] * 25).pace.growing_share == 0.3


def test_few_sentences_tell_no_pace() -> None:
    with pytest.raises(ValueError, match="19 sentences are too few"):
        fit([Said(50, 100)] * (MIN_SENTENCES - 1))


def test_what_is_written_is_read_back() -> None:
    pace = VoicePace(1.9237, 0.88)
    assert pace_in(pace.texts()) == pace
    assert pace_in({"transcript": "Hello."}) is None


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"tokens_per_letter": "1.9"}, "not two numbers"),
        ({"tokens_per_letter": "fast", "growing_share": "0.8"}, "not two numbers"),
        (
            {"tokens_per_letter": "0", "growing_share": "0.8"},
            r"tokens_per_letter is 0\.0; it must lie in 0\.2 to 20\.0",
        ),
        ({"tokens_per_letter": "nan", "growing_share": "0.8"}, "tokens_per_letter is nan"),
        ({"tokens_per_letter": "1.9", "growing_share": "1.1"}, r"growing_share is 1\.1"),
        ({"tokens_per_letter": "1.9", "growing_share": "-inf"}, "growing_share is -inf"),
    ],
)
def test_what_no_voice_can_have_is_refused(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        pace_in(texts)
