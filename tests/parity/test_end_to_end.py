"""Speech tokens -> samples, flow and vocoder together, against upstream's CosyVoice3Model.tts (golden e2e.npz)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.flow import make_runner, offline
from tests.support.golden import load_arrays
from tests.support.vocoder import golden_model, plain_runner
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.vocoder.stretch import MelStretch

# The golden README: the vocoder alone, from equal mels, is equal to 2e-5; ten times that.
VOCODER_TOLERANCE = 2e-4
# From mels that differ in the last bits (1e-6) the phase of the voice drifts apart with time, as for any two correct
# implementations: samples of standard deviation 0.035 are 0.001 to 0.014 apart after 4 s, depending on the machine.
# So the beginning is compared sample by sample, and the whole by its spectrum's magnitudes.
EARLY_SAMPLES = 9_600
SPECTRAL_TOLERANCE = 0.05
MAX_SAMPLES = 110_000
# Upstream's last chunk, which it renders with full attention unless told to keep the streaming mask.
LAST_CHUNK_SAMPLES = 11_520

GOLDEN = load_arrays("e2e.npz")


@pytest.fixture(scope="module")
def flow() -> FlowRunner:
    return make_runner(num_blocks=32, max_streams=4)


@pytest.fixture(scope="module")
def vocoder() -> VocoderRunner:
    return plain_runner(golden_model(MAX_SAMPLES), max_streams=4)


def prompt(num_tokens: int = 30) -> FlowPrompt:
    return FlowPrompt(
        torch.from_numpy(GOLDEN["prompt_token"][0, :num_tokens]),
        torch.from_numpy(GOLDEN["prompt_feat"][0, : 2 * num_tokens]),
        torch.from_numpy(GOLDEN["embedding"][0]),
    )


def render(
    flow: FlowRunner,
    vocoder: VocoderRunner,
    tokens: Sequence[int],
    arrivals: Sequence[int],
    *,
    speed: float = 1.0,
    num_prompt_tokens: int = 30,
) -> npt.NDArray[np.float32]:
    """All samples, the tokens arriving in pieces of these sizes, and what is left, which must be some, in one more."""
    prepared = flow.prepare(prompt(num_prompt_tokens))
    stream, voice, stretch = flow.open(prepared), vocoder.open(), MelStretch(speed)
    samples: list[torch.Tensor] = []
    position = 0
    for size in (*arrivals, len(tokens) - sum(arrivals)):
        stream.append(tokens[position : position + size])
        position += size
        if position == len(tokens):
            stream.finish()
        while stream.is_ready:
            batch = flow.begin([stream])
            while not batch.advance():
                pass
            mel = stretch.push(batch.result()[0], is_final=stream.is_exhausted)
            samples += vocoder.run([VocoderJob(voice, mel, stream.is_exhausted)])
    flow.close(stream)
    vocoder.close(voice)
    flow.release(prepared)
    return torch.cat(samples).numpy()


def spectral_error(heard: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    """Norm of the difference of the magnitude spectrograms (25 ms windows), relative to the expected one."""
    window = torch.hann_window(600)
    magnitudes = [
        torch.stft(torch.from_numpy(samples), 600, 150, window=window, return_complex=True).abs()
        for samples in (heard, expected)
    ]
    return float((magnitudes[0] - magnitudes[1]).norm() / magnitudes[1].norm())


@pytest.mark.parametrize("arrivals", [(), (48, 50), (10, 1, 30, 2), (1,) * 102])
def test_equals_upstream_with_the_streaming_mask_to_the_end(
    flow: FlowRunner, vocoder: VocoderRunner, arrivals: tuple[int, ...]
) -> None:
    speech = render(flow, vocoder, GOLDEN["token"][0].tolist(), arrivals)
    assert len(speech) == GOLDEN["allstream_lens"].sum()
    expected = np.concatenate((GOLDEN["stream_speech"][0, :-LAST_CHUNK_SAMPLES], GOLDEN["allstream_last_chunk"][0]))
    assert np.abs(speech - expected)[:EARLY_SAMPLES].max() < VOCODER_TOLERANCE
    assert spectral_error(speech, expected) < SPECTRAL_TOLERANCE


@pytest.fixture(scope="module")
def given_at_once(flow: FlowRunner, vocoder: VocoderRunner) -> npt.NDArray[np.float32]:
    return render(flow, vocoder, GOLDEN["token"][0].tolist(), ())


@settings(max_examples=6)
@given(arrivals=st.lists(st.integers(0, 30), max_size=6).filter(lambda sizes: sum(sizes) < len(GOLDEN["token"][0])))
def test_any_arrival_of_tokens_gives_the_same_samples(
    flow: FlowRunner, vocoder: VocoderRunner, given_at_once: npt.NDArray[np.float32], arrivals: list[int]
) -> None:
    tokens = GOLDEN["token"][0].tolist()
    assert np.array_equal(render(flow, vocoder, tokens, arrivals), given_at_once)


def test_speed_equals_upstream_where_both_define_it(flow: FlowRunner, vocoder: VocoderRunner) -> None:
    """Upstream at speed 1.3 makes int(40 / 1.3) = 30 frames of 40, a step of 4/3, and offline, with full attention."""
    mel = offline(flow, prompt(10), GOLDEN["token"][0, :20].tolist(), streaming=False, is_final=True)
    stretched = MelStretch(40 / 30).push(mel, is_final=True)
    voice = vocoder.open()
    (speech,) = vocoder.run([VocoderJob(voice, stretched, True)])
    vocoder.close(voice)
    expected = GOLDEN["speed13_p10_n20_speech"][0]
    assert speech.shape == expected.shape
    assert spectral_error(speech.numpy(), expected) < SPECTRAL_TOLERANCE
