"""More voices come over HTTP than the engine has room for at once: all can be spoken with, and sound the same."""

import asyncio
from dataclasses import replace

import httpx

from tests.integration.http_client import base_url
from tests.support.golden import TINY_MODEL_DIR, TINY_VOICES
from tests.support.patient_gateway import PATIENT
from tests.support.tiny_engine import stages_with_room_for, tiny_engine
from voicegate.gateway.server.run import running_gateway

RECORDING = (TINY_MODEL_DIR / "voices" / "woman_prompt.wav").read_bytes()
NUM_VOICES = 3


async def test_voices_are_added_until_there_are_as_many_as_are_allowed() -> None:
    config = replace(PATIENT, enrolment=True, max_voices=len(TINY_VOICES) + NUM_VOICES)
    with stages_with_room_for(2) as stages:
        async with (
            asyncio.timeout(300),
            running_gateway(config, tiny_engine(stages_of=lambda: stages)) as url,
            httpx.AsyncClient(base_url=base_url(url), timeout=None) as client,
        ):
            names = [f"guest{number}" for number in range(NUM_VOICES)]
            for name in names:
                assert (await _add(client, name)).status_code == 201
            refused = await _add(client, "one-more")
            assert (refused.status_code, f"{len(TINY_VOICES) + NUM_VOICES} voices are all" in refused.text) == (
                409,
                True,
            )
            heard = {await _speech(client, name) for name in (*names, names[0])}
            assert len(heard) == 1
            assert await _speech(client, "man") not in heard
            for name in names:
                assert (await client.delete(f"/v1/voices/{name}")).status_code == 200


async def _add(client: httpx.AsyncClient, name: str) -> httpx.Response:
    recording = {"recording": ("woman.wav", RECORDING, "audio/wav")}
    return await client.post("/v1/voices", files=recording, data={"name": name})


async def _speech(client: httpx.AsyncClient, voice: str) -> bytes:
    asked = {"input": "Good day.", "voice": voice, "seed": 3, "response_format": "pcm"}
    response = await client.post("/v1/audio/speech", json=asked)
    assert (response.status_code, response.headers["x-voice"]) == (200, voice)
    return response.content
