"""The tiny model behind HTTP: what a request hears is what a native client hears."""

import asyncio

import pytest

from tests.integration.http_client import PCM, post
from tests.integration.wire_client import connect_to
from tests.support.patient_gateway import PATIENT
from tests.support.tiny_engine import tiny_engine
from voicegate.gateway.server.run import running_gateway

pytestmark = pytest.mark.e2e

TEXT = "The train leaves at half past seven."


async def test_one_request_and_a_native_client_hear_the_same() -> None:
    async with asyncio.timeout(120), running_gateway(PATIENT, tiny_engine()) as url, connect_to(url) as client:
        await client.speak("a", TEXT, voice="rms", seed=3, format=PCM)
        native = b"".join((await client.until_done("a")).packets)
        asked = {"input": TEXT, "voice": "rms", "seed": 3, "response_format": "pcm"}
        status, headers, heard = await post(url, "/v1/audio/speech", asked)
    assert (status, headers["x-voice"]) == (200, "rms")
    assert heard == native
