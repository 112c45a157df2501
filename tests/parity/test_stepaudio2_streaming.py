"""From speech tokens to samples as upstream streams them: flow and vocoder behind the engine's seams."""

import torch

from tests.support.stepaudio2 import golden_flow, golden_prompt, golden_vocoder, load_arrays, source_noise
from voicegate.engine.families.stepaudio2.flow.chunking import trimmed_context
from voicegate.engine.families.stepaudio2.vocoder.calls import OVERLAP_SAMPLES
from voicegate.engine.vocoder.backend import VocoderJob

NUM_FRAMES = 220


def excitation() -> torch.Tensor:
    """Draws of each call's new frames: those for repeated ones are overwritten."""
    new = (30, 50, 100, 40)
    calls = [source_noise(f"e2e.chunk{call}", 1, count + 8 * (call > 0))[0] for call, count in enumerate(new)]
    return torch.cat([calls[0], *(each[OVERLAP_SAMPLES:] for each in calls[1:])])


def test_speech_is_upstreams_as_it_streams() -> None:
    """The engine's own schedule. Upstream trims in the last chunk but one, after the first two had less."""
    golden, flow = load_arrays("stream_e2e.npz"), golden_flow(context=trimmed_context)
    stream = flow.runner.open(flow.runner.prepare(golden_prompt(golden)))
    stream.append(golden["tokens"].tolist())
    stream.finish()
    vocoder = golden_vocoder(max_frames=NUM_FRAMES, noise=excitation())
    place = vocoder.open()
    chunk = 0
    while stream.is_ready:
        (mel,) = flow.render([stream])
        assert len(stream.context) == int(golden.get(f"chunk{chunk}_estimator_att_len", len(stream.context)))
        torch.testing.assert_close(mel[None], golden[f"chunk{chunk}_mel"], rtol=0, atol=1e-4)
        (samples,) = vocoder.run([VocoderJob(place, mel, stream.is_exhausted)])
        torch.testing.assert_close(samples[None], golden[f"chunk{chunk}_speech"], rtol=0, atol=2e-3)
        chunk += 1
    assert chunk == 4
