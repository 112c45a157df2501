"""The tiny model behind HTTP: what a request hears is what a native client hears."""

import asyncio
import base64
import dataclasses
import io
from typing import Any, cast

import numpy as np
import soundfile

from tests.integration.http_client import PCM, post
from tests.integration.wire_client import connect_to
from tests.support.golden import TINY_MODEL_DIR
from tests.support.lanes import on_lane
from tests.support.patience import PATIENCE_S
from tests.support.patient_gateway import PATIENT
from tests.support.tiny_engine import tiny_engine, tiny_runner
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.llm.backend import LlmBackend, SequenceOutput
from voicegate.engine.llm.runner import LlmRunner
from voicegate.engine.voices.voice import load_voice
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol import messages as wire

TEXT = "The train leaves at half past seven."


async def test_one_request_and_a_native_client_hear_the_same() -> None:
    async with asyncio.timeout(120), running_gateway(PATIENT, tiny_engine()) as url, connect_to(url) as client:
        await client.speak("a", TEXT, voice="woman", seed=3, format=PCM)
        native = b"".join((await client.until_done("a")).packets)
        asked = {"input": TEXT, "voice": "woman", "seed": 3, "response_format": "pcm"}
        status, headers, heard = await post(url, "/v1/audio/speech", asked)
    assert (status, headers["x-voice"]) == (200, "woman")
    assert heard == native


async def test_a_recording_with_the_request_is_spoken_with_its_voice_and_its_silence_is_left_out() -> None:
    """As the voice that was made of the same recording speaks, to what a start some frames later makes of it."""
    voice = load_voice(TINY_MODEL_DIR / "voices" / "woman.safetensors", vocab_size=6561, speaker_dim=192)
    speech = (TINY_MODEL_DIR / "voices" / "woman_prompt.wav").read_bytes()
    samples, rate_hz = soundfile.read(io.BytesIO(speech))
    silent = io.BytesIO()
    soundfile.write(silent, np.pad(samples, (4 * rate_hz, 2 * rate_hz)), rate_hz, format="WAV")
    gateway = dataclasses.replace(PATIENT, enrolment=True)
    async with asyncio.timeout(PATIENCE_S), running_gateway(gateway, engine := tiny_engine()) as url:
        asked = {"input": TEXT, "seed": 3, "response_format": "pcm", "ref_text": voice.transcript}
        heard = []
        for recording in (speech, silent.getvalue()):
            body = asked | {"ref_audio": base64.b64encode(recording).decode()}
            status, headers, audio = await post(url, "/v1/audio/speech", body)
            assert (status, headers["x-voice"]) == (200, "ref_audio")
            heard.append(audio)
        for name in engine.info.clones:
            await engine.remove_voice(name)
        _, _, native = await post(url, "/v1/audio/speech", asked | {"voice": "woman", "ref_text": ""})
    plain, with_silence, expected = (np.frombuffer(audio, np.int16) for audio in (*heard, native))
    assert np.corrcoef(plain, expected)[0, 1] > 0.99, "it is the voice to the last bits of its mel"
    assert abs(len(with_silence) / len(expected) - 1) < 0.25


class MuteLlm:
    """It ends whatever it begins, as one may that knows no letter of a script."""

    def __init__(self, runner: LlmRunner) -> None:
        self._llm = on_lane(runner, HOST_LANE)
        self.is_mute = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    def poll(self) -> list[SequenceOutput]:
        outputs = self._llm.poll()
        if not self.is_mute:
            return outputs
        for sequence_id in (begun := {output.sequence_id for output in outputs}):
            self._llm.abort(sequence_id)
        return [SequenceOutput(sequence_id, is_final=True) for sequence_id in begun]


async def test_words_of_which_nothing_is_heard_are_refused_before_the_first_byte() -> None:
    """A native context is told the same, and its socket stays."""
    unknown, known = "\u4f60\u597d\u3002", "Yes."
    llm = MuteLlm(tiny_runner())
    engine = tiny_engine(llm_of=lambda _: cast(LlmBackend, llm))
    async with asyncio.timeout(120), running_gateway(PATIENT, engine) as url, connect_to(url) as client:
        status, _, body = await post(url, "/v1/audio/speech", {"input": unknown, "voice": "woman"})
        assert status == 400
        assert b"made no speech of this text" in body
        await client.speak("a", unknown, voice="woman")
        error = await client.until(wire.Error, "a")
        assert (error.code, error.fatal) == ("unsupported", True)
        llm.is_mute = False
        await client.speak("a", known, voice="woman")
        assert (await client.until_done("a")).packets
