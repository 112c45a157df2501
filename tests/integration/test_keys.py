"""API keys over real sockets: who is let in, who is not, in which form they are told, and keys taken back meanwhile."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog
from cartesia import APIStatusError as CartesiaStatusError
from cartesia import AsyncCartesia
from deepgram import AsyncDeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from elevenlabs.client import AsyncElevenLabs
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.integration.http_client import RawRequest, base_url, post
from tests.integration.raw_client import exchange, get
from tests.integration.resuming_client import ResumingClient, resuming
from tests.integration.test_process import server_process
from tests.integration.wire_client import closed_with, connect_to, running, serving
from voicegate.clients.python import client as python_client
from voicegate.clients.python.errors import ConnectFailed
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.gateway.auth.key_file import add_key, remove_key
from voicegate.gateway.auth.keyring import Allowance, Key, digest_of
from voicegate.gateway.cli import main
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.websocket.bounded_socket import BoundedSocket
from voicegate.protocol import messages as wire
from voicegate.protocol.messages import SUBPROTOCOL

SECRET, OTHER = "vg_secret-of-ann", "vg_secret-of-ben"
BEARER = {"Authorization": f"Bearer {SECRET}"}
SPEECH = "/v1/audio/speech"
ASKED: dict[str, Any] = {"input": "Hello there.", "voice": "alloy", "response_format": "pcm"}
VOICES = "/v1/voices"
SINGLE = "/v1/text-to-speech/hum/stream-input"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    add_key(path, Key("ann", digest_of(SECRET)))
    add_key(path, Key("ben", digest_of(OTHER), Allowance(sockets=1, utterances=1)))
    return path


def at(url: str, path: str) -> str:
    return url.replace("/v1/stream", path)


async def refusal(url: str, **options: Any) -> InvalidStatus:
    with pytest.raises(InvalidStatus) as caught:
        await connect(url, **options)
    return caught.value


# --- sockets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", {"additional_headers": BEARER}),
        ("", {"additional_headers": {"xi-api-key": SECRET}}),
        ("", {"additional_headers": {"X-API-Key": SECRET}}),
        ("", {"additional_headers": {"Authorization": f"Token {SECRET}"}}),
        ("", {"additional_headers": {"kyutai-api-key": SECRET}}),
        (f"?api_key={SECRET}", {}),
        (f"?access_token={SECRET}", {}),
        (f"?authorization=Bearer%20{SECRET}", {}),
        (f"?xi-api-key={SECRET}", {}),
        ("", {"subprotocols": [Subprotocol(SUBPROTOCOL), Subprotocol("token"), Subprotocol(SECRET)]}),
        ("", {"subprotocols": [Subprotocol("bearer"), Subprotocol(SECRET)]}),
    ],
    ids=str,
)
async def test_a_key_is_taken_wherever_a_client_puts_it(key_file: Path, query: str, options: dict[str, Any]) -> None:
    async with serving(api_keys_file=key_file) as served, connect_to(served.url + query, **options) as client:
        await client.speak("a", "Hello")
        assert (await client.until_done("a")).packets


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": f"Bearer {SECRET}x"}, {"Authorization": f"Basic {SECRET}"}, {"Authorization": "Bearer "}],
    ids=str,
)
async def test_without_a_good_key_there_is_no_socket(key_file: Path, headers: dict[str, str]) -> None:
    async with serving(api_keys_file=key_file) as served:
        response = (await refusal(served.url, additional_headers=headers)).response
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
        assert json.loads(response.body)["error"]["code"] == "unauthorized"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (SINGLE, lambda body: body["detail"]["status"] == "invalid_api_key"),
        ("/v1/text-to-speech/hum/multi-stream-input", lambda body: body["detail"]["status"] == "invalid_api_key"),
        ("/tts/websocket", lambda body: body["error_code"] == "unauthorized"),
        ("/v1/speak", lambda body: body["err_code"] == "INVALID_AUTH"),
        ("/v1/audio/speech/stream", lambda body: body["error"]["code"] == "invalid_api_key"),
        ("/api/tts_streaming", lambda body: body["error"]["code"] == "unauthorized"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
async def test_each_vendors_client_is_told_in_its_form(key_file: Path, path: str, told: Any) -> None:
    async with serving(api_keys_file=key_file) as served:
        response = (await refusal(at(served.url, path))).response
        assert response.status_code == 401
        assert told(json.loads(response.body)), response.body
        async with connect(at(served.url, path), additional_headers=BEARER):
            pass


async def test_the_log_has_the_name_and_not_the_key(key_file: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        async with serving(api_keys_file=key_file) as served:
            async with connect_to(f"{served.url}?api_key={SECRET}"):
                pass
            await refusal(f"{served.url}?api_key=wrong-but-private")
            assert (await post(served.url, SPEECH, ASKED, "Authorization: Bearer wrong-but-private"))[0] == 401
    assert {line.get("key") for line in lines if line["event"] == "socket opened"} == {"ann"}
    assert any("without a good key" in line["event"] for line in lines)
    assert SECRET not in str(lines)
    assert "private" not in str(lines)


async def test_a_key_has_its_limits(key_file: Path) -> None:
    ben = {"Authorization": f"Bearer {OTHER}"}
    script = Script(faults={0: Fault(FaultKind.STALL)})
    async with serving(script, api_keys_file=key_file) as served, connect_to(served.url, additional_headers=ben) as one:
        response = (await refusal(served.url, additional_headers=ben)).response
        assert (response.status_code, b"with your key" in response.body) == (429, True)
        status, headers, _ = await post(served.url, SPEECH, ASKED, f"Authorization: Bearer {OTHER}")
        assert (status, headers["retry-after"]) == (429, "1")
        await one.speak("a", "Hello")
        await one.until(wire.Opened, "a")
        await one.speak("b", "Hello")
        error = await one.until(wire.Error, "b")
        assert (error.code, "with your key" in error.message) == ("too_many_contexts", True)
        async with connect_to(served.url, additional_headers=BEARER) as another:
            await another.speak("a", "Hello")
            await another.until_done("a")


# --- requests ---------------------------------------------------------------------------------------------


async def test_probes_and_the_page_ask_for_no_key(key_file: Path) -> None:
    async with serving(api_keys_file=key_file) as served:
        for path in ("/healthz", "/readyz", "/", "/openapi.json", "/player/player.js", "/healthz/", "//healthz"):
            assert (await get(served.url, path))[0] == 200, path
        for path in ("/v1/voices", "/v1/models", "/v1/capacity", "/v1/voices/hum", "/nothing", "//v1/voices/"):
            status, headers, _ = await get(served.url, path)
            assert (status, "Bearer" in headers["WWW-Authenticate"]) == (401, True), path
        known = f"GET /v1/voices HTTP/1.1\r\nHost: localhost\r\nxi-api-key: {SECRET}\r\n\r\n"
        assert (await exchange(served.url, known))[0] == 200
        assert (await get(served.url, "/v1/voices", "OPTIONS"))[0] == 200  # a browser asks before it sends a key


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (SPEECH, lambda body: body["error"]["code"] == "invalid_api_key"),
        ("/v1/text-to-speech/hum", lambda body: body["detail"]["status"] == "invalid_api_key"),
        ("/tts/bytes", lambda body: body["error_code"] == "unauthorized"),
        ("/v1/speak", lambda body: body["err_code"] == "INVALID_AUTH"),
        ("/v1/voices", lambda body: body["error"]["code"] == "unauthorized"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
async def test_a_request_without_a_good_key(key_file: Path, path: str, told: Any) -> None:
    async with serving(api_keys_file=key_file, enrolment=True) as served:
        assert b'"detail"' in (await post(served.url, "/v1/voices", ASKED, "xi-api-key: wrong"))[2]
        for headers in ((), ("Authorization: Bearer wrong",)):
            status, _, body = await post(served.url, path, ASKED, *headers)
            assert (status, told(orjson.loads(body))) == (401, True)
        assert served.engine.requests == []


# --- keys that come and go ----------------------------------------------------------------------------------


async def test_a_key_that_is_taken_back_ends_its_sockets_and_no_others(key_file: Path) -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.STALL), 2: Fault(FaultKind.STALL, after_ms=240)}))
    ben = {"Authorization": f"Bearer {OTHER}"}
    async with running(engine, api_keys_file=key_file) as run:
        url = run.gateway.url
        async with (
            connect_to(url, additional_headers=BEARER) as theirs,
            connect_to(url, additional_headers=ben) as other,
        ):
            await theirs.speak("a", "Hello")
            await engine.until(lambda: engine.num_live == 1)
            await other.speak("a", "Hello")
            await other.until_done("a")
            request = await RawRequest.post(url, SPEECH, ASKED, f"Authorization: Bearer {SECRET}")
            await request.head()
            remove_key(key_file, "ann")
            add_key(key_file, Key("cleo", digest_of("vg_secret-of-cleo")))
            run.gateway.reload()
            error = await theirs.until(wire.Error)
            assert (error.code, error.fatal) == ("unauthorized", True)
            assert await closed_with(theirs) == 1008
            with pytest.raises(asyncio.IncompleteReadError):
                await request.body()
            await request.close()
            await engine.until(lambda: engine.num_live == 0)
            assert (await refusal(url, additional_headers=BEARER)).response.status_code == 401
            await other.speak("b", "Hello")
            await other.until_done("b")
        async with connect_to(url, additional_headers={"Authorization": "Bearer vg_secret-of-cleo"}):
            pass


async def test_other_limits_of_a_key_hold_for_sockets_that_are_open(key_file: Path) -> None:
    engine = FakeEngine(Script(real_time_factor=0.1))
    async with (
        running(engine, api_keys_file=key_file) as run,
        connect_to(run.gateway.url, additional_headers={"Authorization": f"Bearer {OTHER}"}) as client,
    ):
        for num_utterances in (1, 2, 1):
            remove_key(key_file, "ben")
            add_key(key_file, Key("ben", digest_of(OTHER), Allowance(sockets=1, utterances=num_utterances)))
            run.gateway.reload()
            for number in range(num_utterances + 1):
                await client.send(wire.Open(context=f"{number}"), wire.Text(f"{number}", "Hello there. "))
            error = await client.until(wire.Error)
            assert (error.code, error.context) == ("too_many_contexts", f"{num_utterances}")
            await client.send(*(wire.Cancel(f"{number}") for number in range(num_utterances)))
            for _ in range(num_utterances):
                await client.until(wire.Cancelled)


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nguest\r\n'
    b'--b\r\nContent-Disposition: form-data; name="recording"; filename="a.wav"\r\n\r\nRIFF\r\n--b--\r\n'
)


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [(SPEECH, "application/json", orjson.dumps(ASKED)), (VOICES, "multipart/form-data; boundary=b", FORM)],
)
async def test_a_key_that_is_taken_back_while_the_body_comes(key_file: Path, path: str, kind: str, body: bytes) -> None:
    engine = FakeEngine()
    async with running(engine, api_keys_file=key_file, enrolment=True) as run:
        headers = (f"Authorization: Bearer {SECRET}", f"Content-Type: {kind}")
        request = await RawRequest.begin(run.gateway.url, path, len(body), *headers)
        while '"sockets":1' not in (await exchange(run.gateway.url, capacity_request(OTHER)))[2]:
            pass
        remove_key(key_file, "ann")
        run.gateway.reload()
        request.writer.write(body)
        assert (await request.head())[0] == 401
        await request.close()
        assert engine.requests == []
        assert "guest" not in {voice.name for voice in engine.info.voices}


async def test_a_file_without_a_key_is_told_of(key_file: Path) -> None:
    async with running(FakeEngine(), api_keys_file=key_file) as run:
        remove_key(key_file, "ann")
        remove_key(key_file, "ben")
        with structlog.testing.capture_logs() as lines:
            run.gateway.reload()
        (line,) = [line for line in lines if "no client is let in" in line["event"]]
        assert (line["log_level"], line["file"]) == ("warning", str(key_file))
        assert (await refusal(run.gateway.url, additional_headers=BEARER)).response.status_code == 401


def capacity_request(secret: str) -> str:
    return f"GET /v1/capacity HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n"


async def test_a_file_that_cannot_be_read_again_changes_nothing(key_file: Path) -> None:
    async with (
        running(FakeEngine(), api_keys_file=key_file) as run,
        connect_to(run.gateway.url, additional_headers=BEARER) as client,
    ):
        for spoil in (lambda: key_file.write_text("ann\n"), key_file.unlink):
            spoil()
            with structlog.testing.capture_logs() as lines:
                run.gateway.reload()
            assert [line["log_level"] for line in lines] == ["error"]
            assert (await refusal(run.gateway.url)).response.status_code == 401
        await client.speak("a", "Hello")
        await client.until_done("a")


async def test_sighup_reads_the_keys_again(key_file: Path) -> None:
    async with server_process(api_keys_file=str(key_file)) as (process, url, lines):
        async with connect_to(url, additional_headers=BEARER) as client:
            remove_key(key_file, "ann")
            process.send_signal(signal.SIGHUP)
            assert (await client.until(wire.Error)).code == "unauthorized"
            assert await closed_with(client) == 1008
        assert (await refusal(url, additional_headers=BEARER)).response.status_code == 401
        process.terminate()
    assert process.returncode == 0, lines
    assert SECRET not in str(lines)


async def test_what_a_key_may_hold_is_not_undone_by_a_socket_from_before(key_file: Path) -> None:
    async with running(FakeEngine(), api_keys_file=key_file) as run:
        url = run.gateway.url
        async with resuming(url, additional_headers=BEARER) as client:
            other = ResumingClient(url, additional_headers=BEARER)
            await other.dial()
            await other.until(wire.Ready)
            remove_key(key_file, "ann")
            add_key(key_file, Key("ann", digest_of(SECRET), Allowance(contexts=1)))
            run.gateway.reload()
            await other.ask(session=client.ready.session, token=client.ready.token, received=0)
            await other.until(wire.Resumed)
            await other.send(wire.Open("a"), wire.Open("b"))
            assert (await other.until(wire.Opened)).context == "a"
            assert (await other.until(wire.Error)).context == "b"
            await other.leave()


async def test_a_key_that_is_taken_back_as_its_socket_is_let_in(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it has its seat, where those are looked for who hold such a key."""
    async with running(FakeEngine(), api_keys_file=key_file) as run:
        begin = run.gateway._listener._begin

        def begin_and_reload(websocket: BoundedSocket) -> None:
            begin(websocket)
            remove_key(key_file, "ann")
            run.gateway.reload()

        monkeypatch.setattr(run.gateway._listener, "_begin", begin_and_reload)
        async with connect_to(run.gateway.url, additional_headers=BEARER) as client:
            assert (await client.until(wire.Error)).code == "unauthorized"
            assert await closed_with(client) == 1008


# --- tokens -----------------------------------------------------------------------------------------------

TOKENS = "/v1/tokens"


async def token_of(url: str, seconds: int = 60) -> str:
    status, _, body = await post(url, TOKENS, {"seconds": seconds}, f"Authorization: Bearer {SECRET}")
    assert status == 200
    token = orjson.loads(body)["token"]
    assert isinstance(token, str)
    return token


async def test_a_token_opens_a_browsers_socket(key_file: Path) -> None:
    async with serving(api_keys_file=key_file) as served:
        token = await token_of(served.url)
        offered = [Subprotocol(SUBPROTOCOL), Subprotocol("token"), Subprotocol(token)]
        async with connect_to(served.url, subprotocols=offered) as client:
            assert client.websocket.subprotocol == SUBPROTOCOL
            await client.speak("a", "Hello")
            await client.until_done("a")
        async with connect_to(f"{served.url}?access_token={token}"):
            pass
        async with connect(at(served.url, f"{SINGLE}?single_use_token={token}")):
            pass
        assert (await post(served.url, SPEECH, ASKED, f"Authorization: Bearer {token}"))[0] == 200


@pytest.mark.filterwarnings("ignore:websockets:DeprecationWarning")  # of what Deepgram's package uses
async def test_other_vendors_packages_get_tokens(key_file: Path) -> None:
    async with serving(api_keys_file=key_file) as served:
        base = base_url(served.url)
        theirs = AsyncElevenLabs(api_key=SECRET, base_url=base)
        single_use = await theirs.tokens.single_use.create("tts_websocket")
        async with connect(at(served.url, f"{SINGLE}?single_use_token={single_use.token}")):
            pass
        async with AsyncCartesia(api_key=SECRET, base_url=base) as cartesia:
            access = await cartesia.access_token.create(expires_in=600, grants={"tts": True})
        async with connect(at(served.url, f"/tts/websocket?access_token={access.token}")):
            pass
        here = DeepgramClientEnvironment(base=base, production=base, agent=base, agent_rest=base)
        granted = await AsyncDeepgramClient(api_key=SECRET, environment=here).auth.v1.tokens.grant(ttl_seconds=300)
        assert granted.expires_in == 300
        async with connect(
            at(served.url, "/v1/speak"), additional_headers={"Authorization": f"Bearer {granted.access_token}"}
        ):
            pass
        async with AsyncCartesia(api_key=access.token, base_url=base, max_retries=0) as browser:
            with pytest.raises(CartesiaStatusError) as caught:
                await browser.access_token.create(expires_in=5)
        assert (caught.value.status_code, "a token is none" in str(caught.value.body)) == (403, True)


async def test_tokens_that_are_not_good(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    async with running(engine, api_keys_file=key_file) as run:
        url = run.gateway.url
        token, short = await token_of(url), await token_of(url, 1)
        for forged in (token[:-1], token.replace("vgt_", "vgt_9"), "vgt_1.YW5u." + "A" * 43):
            assert (await refusal(f"{url}?access_token={forged}")).response.status_code == 401
        expires_s = int(short.removeprefix("vgt_").partition(".")[0])
        monkeypatch.setattr("time.time", lambda: float(expires_s))
        response = (await refusal(f"{url}?access_token={short}")).response
        assert (response.status_code, b"expired" in response.body) == (401, True)
        monkeypatch.undo()
        async with connect_to(f"{url}?access_token={token}") as client:
            remove_key(key_file, "ann")
            run.gateway.reload()
            assert await closed_with(client) == 1008
        assert (await refusal(f"{url}?access_token={token}")).response.status_code == 401


async def test_who_gets_a_token(key_file: Path) -> None:
    async with serving(api_keys_file=key_file, token_secret="0123456789abcdef") as served:
        token = await token_of(served.url)
        assert (await post(served.url, TOKENS, {}))[0] == 401
        for secret, status in (("x", 401), (token, 403)):
            assert (await post(served.url, TOKENS, {}, f"Authorization: Bearer {secret}"))[0] == status
        good = f"Authorization: Bearer {SECRET}"
        for body in (b"{", b'{"seconds": 0}', b'{"seconds": 3601}', b'{"seconds": "x"}', b"[]"):
            assert (await post(served.url, TOKENS, body, good))[0] == 400
        assert (await post(served.url, TOKENS, b" " * 2000, good))[0] == 413
        assert orjson.loads((await post(served.url, TOKENS, b"", good))[2])["expires_in"] == 60
    async with (
        serving(api_keys_file=key_file, token_secret="0123456789abcdef") as other,
        connect_to(f"{other.url}?access_token={token}"),
    ):
        pass


async def test_a_server_without_keys_gives_a_token_that_opens_what_is_open(key_file: Path) -> None:
    """So that an app need not know whether it is in development."""
    secret = "0123456789abcdef"
    async with serving(token_secret=secret) as unlocked:
        status, _, body = await post(unlocked.url, TOKENS, {"seconds": 30})
        told = orjson.loads(body)
        assert (status, told["expires_in"]) == (200, 30)
        assert (await post(unlocked.url, TOKENS, {"seconds": 0}))[0] == 400, "as with keys"
        for path in ("/v1/single-use-token/tts_websocket", "/access-token", "/v1/auth/grant"):
            assert (await post(unlocked.url, path, {}))[0] == 200
        async with connect_to(f"{unlocked.url}?access_token={told['token']}"):
            pass
    async with serving(api_keys_file=key_file, token_secret=secret) as locked:
        assert (await refusal(f"{locked.url}?access_token={told['token']}")).response.status_code == 401


async def test_a_token_neither_adds_voices_nor_takes_them_away(key_file: Path) -> None:
    async with serving(api_keys_file=key_file, enrolment=True) as served:
        token = await token_of(served.url)
        for path in (VOICES, f"{VOICES}/add"):
            status, _, body = await post(served.url, path, b"", f"Authorization: Bearer {token}")
            assert (status, b"a token is none" in body) == (403, True)
        assert (await get(served.url, f"{VOICES}/drone?access_token={token}", "DELETE"))[0] == 403
        assert (await get(served.url, f"{VOICES}/drone?access_token={token}"))[0] == 200
        assert (await get(served.url, f"{VOICES}/drone?access_token={token}&api_key={SECRET}", "DELETE"))[0] == 200


# --- starts -----------------------------------------------------------------------------------------------


async def test_a_server_that_needs_keys_does_not_start_without(tmp_path: Path) -> None:
    for settings in ({"require_key": True}, {"api_keys_file": tmp_path / "none"}):
        with pytest.raises(GatewayError, match=r"VOICEGATE_API_KEY|No such file"):
            async with running(FakeEngine(), **settings):
                pass


async def test_an_open_port_without_keys_is_loud() -> None:
    with structlog.testing.capture_logs() as lines:
        async with running(FakeEngine(), host="0.0.0.0"):
            pass
    (said,) = [line for line in lines if "asks for no key" in line["event"]]
    assert said["log_level"] == "warning"


async def test_a_start_without_a_single_key_is_told_of(tmp_path: Path) -> None:
    """As a reload is."""
    (tmp_path / "keys").write_text("# none yet\n")
    with structlog.testing.capture_logs() as lines:
        async with running(FakeEngine(), api_keys_file=tmp_path / "keys"):
            pass
        async with running(FakeEngine(), api_keys_file=tmp_path / "keys", api_key=SECRET):
            pass
    said = [line for line in lines if "no client is let in" in line["event"]]
    assert [line["file"] for line in said] == [str(tmp_path / "keys")]


# --- the Python client --------------------------------------------------------------------------------------


async def test_the_python_client(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOICEGATE_API_KEY", raising=False)
    async with serving(api_keys_file=key_file) as served:
        with pytest.raises(ConnectFailed, match="401") as caught:
            async with python_client.connect(served.url):
                pass
        assert (caught.value.status, caught.value.is_transient) == (401, False)
        async with python_client.connect(served.url, api_key=SECRET) as gate:
            assert [packet async for packet in gate.speak("Hello")]
        monkeypatch.setenv("VOICEGATE_API_KEY", SECRET)
        async with python_client.connect(served.url) as gate:
            assert SECRET not in repr(gate.__dict__)


async def test_voices_of_a_gateway_with_keys(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOICEGATE_API_KEY", raising=False)
    async with serving(api_keys_file=key_file) as served:
        for key, status in (("wrong", 1), (SECRET, 0)):
            arguments = ("voices", "--url", served.url, "--api-key", key)
            assert await asyncio.to_thread(main.run, arguments) == status
