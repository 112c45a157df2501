"""CosyVoice2's LLM with Step-Audio2's token2wav, small, behind a real socket: all that the first family does."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.integration.http_client import base_url
from tests.integration.wire_client import Heard, WireClient, connect_to
from tests.support.patience import PATIENCE_S
from tests.support.patient_gateway import PATIENT
from tests.support.second_family import VOICES, config_of, write_second_family
from tests.unit.clients.deadline import deadline
from tests.unit.engine.voices.onnx_models import write_speaker_encoder, write_speech_tokenizer
from tests.unit.engine.voices.sounds import file_of, speechlike
from voicegate.engine.checkpoint.conversion import Decoding
from voicegate.engine.load.build import create_engine
from voicegate.gateway.cli.main import run
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol import messages as wire

TEXT = "Good morning. We leave at noon."
PCM = wire.Format(codec="pcm_s16le")


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    with deadline(120):
        yield


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_second_family(tmp_path_factory.mktemp("family") / "two")
    write_speech_tokenizer(made / "speech_tokenizer_v2_25hz.onnx")
    write_speaker_encoder(made / "campplus.onnx")
    return made


@pytest.fixture
async def url(model_dir: Path) -> AsyncIterator[str]:
    async with running_gateway(PATIENT, create_engine(config_of(model_dir))) as url:
        yield url


async def spoken(client: WireClient, context: str, **options: Any) -> Heard:
    await client.speak(context, TEXT, **{"voice": VOICES[0], "seed": 1, "format": PCM, **options})
    return await client.until_done(context)


def pcm(heard: Heard) -> bytes:
    return b"".join(heard.packets)


def words(heard: Heard) -> list[str]:
    alignments = [message for message in heard.messages if isinstance(message, wire.Alignment)]
    return [item.text for alignment in alignments for item in alignment.items]


async def test_every_mode_speaks_all_of_the_text(url: str) -> None:
    async with connect_to(url) as client:
        said: dict[str, bytes] = {}
        for mode in ("clause", "incremental", "bistream"):
            heard = await spoken(client, mode, mode=mode)
            said[mode] = pcm(heard)
            assert len(said[mode]) > 48 * 1000, mode  # 1 s: five to seven tokens for each of the text
            assert words(heard) == TEXT.split(), mode
        again = await spoken(client, "again", mode="clause")
        assert pcm(again) == said["clause"]
        others = [{"voice": VOICES[1]}, {"seed": 2}, {"instruct": "Speak slowly."}]
        for number, options in enumerate(others):
            assert pcm(await spoken(client, f"other-{number}", mode="clause", **options)) != said["clause"], options
        opus = await spoken(client, "opus", mode="clause", format=wire.Format())
        assert abs(len(opus.decode()) // 2 - len(said["clause"]) // 2) <= 480


async def test_text_that_is_written_piece_by_piece_and_a_cancel_beside_it(url: str) -> None:
    async with connect_to(url) as client:
        await client.send(wire.Open("cancelled", voice=VOICES[0]), wire.Text("cancelled", TEXT * 20))
        await client.send(wire.Open("written", voice=VOICES[1], format=PCM))
        for start in range(0, len(TEXT), 5):
            await client.send(wire.Text("written", TEXT[start : start + 5]))
        await client.send(wire.End("written"))
        while not client.heard["cancelled"] or not client.heard["cancelled"][-1].audio:
            await client.receive()
        await client.send(wire.Cancel("cancelled"))
        cancelled = await client.until(wire.Cancelled, "cancelled")
        assert cancelled.spoken_text + cancelled.remaining_text == TEXT * 20
        if not any(isinstance(message, wire.Done) for message in client.heard["written"][-1].messages):
            await client.until_done("written")
        assert words(client.heard["written"][-1]) == TEXT.split()
        assert pcm(await spoken(client, "behind"))


async def test_a_voice_is_made_and_a_dialect_speaks_with_it(model_dir: Path) -> None:
    async with running_gateway(replace(PATIENT, enrolment=True), create_engine(config_of(model_dir))) as url:
        http_url = base_url(url)
        form = {"name": "guest", "transcript": "Hello there."}
        async with httpx.AsyncClient(base_url=http_url, timeout=2 * PATIENCE_S) as http:
            files = {"recording": ("guest.wav", file_of(speechlike()), "audio/wav")}
            made = await http.post("/v1/voices", data=form, files=files)
            assert made.status_code == 201, made.text
        async with connect_to(url) as client:
            native = pcm(await spoken(client, "native", voice="guest"))
        speech = {"response_format": "pcm", "stream_audio": True, "word_timestamps": True, "voice": "guest", "seed": 1}
        async with connect(url.removesuffix(wire.STREAM_PATH) + "/v1/audio/speech/stream") as websocket:
            for message in (
                {"type": "session.config", **speech},
                {"type": "input.text", "text": TEXT},
                {"type": "input.done"},
            ):
                await websocket.send(json.dumps(message))
            heard: list[dict[str, Any]] = []
            while not heard or heard[-1]["type"] != "session.done":
                heard.append(json.loads(await websocket.recv()))
        audio = [base64.b64decode(each["audio_b64"]) for each in heard if each["type"] == "audio.chunk"]
        assert b"".join(audio) == native


async def test_the_bench_measures_it(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("Good morning.\n\nSee you at noon.\n")
    options = (
        "--scenarios",
        "alone:whole",
        "--num-alone",
        "2",
        "--codec",
        "pcm_s16le",
        "--texts",
        str(texts),
        "-o",
        str(tmp_path),
    )
    assert await asyncio.to_thread(run, ("bench", url, *options)) == 0
    assert "alone:whole" in capsys.readouterr().out
    found = json.loads((tmp_path / "bench.json").read_text())["scenarios"]["alone:whole"]
    assert found["audible_ms"]["num"] == 2


async def test_as_deployed(tmp_path: Path) -> None:
    made = write_second_family(tmp_path / "two", Decoding.DEPLOYED)
    async with running_gateway(PATIENT, create_engine(config_of(made))) as url, connect_to(url) as client:
        for mode in ("clause", "incremental", "bistream"):
            heard = await spoken(client, mode, mode=mode)
            assert words(heard) == TEXT.split(), mode
            assert len(pcm(heard)) > 48 * 1000, mode
