"""Token2wav alone: every clip is rendered to its end, one after the other and together."""

import pytest

from tests.support.tiny_engine import tiny_stages
from voicegate.bench.engine.token2wav import clip_tokens, figures, render

_SAMPLES_PER_TOKEN = 960


def test_26_clips_are_170_seconds() -> None:
    clips = clip_tokens(26, 6_561)
    assert sum(map(len, clips)) / 25 == pytest.approx(170, abs=0.1)
    assert len(set(map(len, clips))) == 26


def test_every_clip_is_rendered_to_its_end() -> None:
    clips = [tokens[:length] for tokens, length in zip(clip_tokens(2, 6_561), (12, 40), strict=True)]
    rendered = render(tiny_stages(), clips, "rms", max_rows=2)
    assert [clip.num_samples for clip in rendered] == [12 * _SAMPLES_PER_TOKEN, 40 * _SAMPLES_PER_TOKEN]
    told = figures(rendered, 0.416)
    assert told["audio_s"] == 2.08
    assert told["rtf"] == 0.2
    assert told["first_samples_ms"]["num"] == 2
