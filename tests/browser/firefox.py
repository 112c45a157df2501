"""A Firefox of the system's, by WebDriver BiDi, which it speaks itself; and a loudspeaker for it where there is none.

Playwright's own Firefox is a build that no user has, and its way to others needs commands that an ESR does not have.
"""

import asyncio
import base64
import contextlib
import itertools
import os
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from websockets.asyncio.client import ClientConnection, connect

from tests.support.patience import PATIENCE_S

HERE = Path(__file__).parent
SERVED = ("harness.js", "capture-worklet.js")
LISTENS = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")


class Bidi:
    """Commands and their answers, by id. What fails raises a RuntimeError."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.complaints: list[str] = []  # what pages log as errors
        self._serving: set[asyncio.Task[Any]] = set()

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(orjson.dumps({"id": number, "method": method, "params": params}).decode())
        async with asyncio.timeout(PATIENCE_S):  # a tab that froze answers nothing
            told = await answer
        if told["type"] != "success":
            raise RuntimeError(f"{method}: {told['error']}: {told['message']}")
        result: dict[str, Any] = told["result"]
        return result

    async def read(self) -> None:
        """Until the socket ends."""
        async for raw in self._socket:
            told = orjson.loads(raw)
            if told["type"] != "event":
                self._answers.pop(told["id"]).set_result(told)
            elif told["method"] == "log.entryAdded" and told["params"]["level"] == "error":
                self.complaints.append(told["params"]["text"])
            elif told["method"] == "network.beforeRequestSent" and told["params"]["isBlocked"]:
                serving = asyncio.create_task(self._serve(told["params"]["request"]))
                self._serving.add(serving)
                serving.add_done_callback(self._serving.discard)

    async def _serve(self, request: Mapping[str, Any]) -> None:
        """Serves files that the tests need in the page and the gateway does not have."""
        body = (HERE / urlsplit(request["url"]).path.rpartition("/")[2]).read_bytes()
        await self.send(
            "network.provideResponse",
            request=request["request"],
            statusCode=200,
            headers=[{"name": "Content-Type", "value": {"type": "string", "value": "text/javascript"}}],
            body={"type": "base64", "value": base64.b64encode(body).decode()},
        )


class Mouse:
    def __init__(self, bidi: Bidi, context: str) -> None:
        self._bidi = bidi
        self._context = context

    async def click(self, x: float, y: float, *, of: dict[str, str] | None = None) -> None:
        """Against the window, or against the middle of the element `of`, wherever that is by then."""
        origin: Any = "viewport" if of is None else {"type": "element", "element": of}
        actions = [
            {"type": "pointerMove", "x": round(x), "y": round(y), "origin": origin},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        pointer = {"type": "pointer", "id": "mouse", "actions": actions}
        await self._bidi.send("input.performActions", context=self._context, actions=[pointer])


class FirefoxPage:
    """As much of Playwright's page as the rig uses."""

    def __init__(self, bidi: Bidi, context: str) -> None:
        self._bidi = bidi
        self._context = context
        self.mouse = Mouse(bidi, context)

    async def goto(self, url: str) -> None:
        await self._bidi.send("browsingContext.navigate", context=self._context, url=url, wait="complete")

    async def evaluate(self, function: str, argument: Any = None) -> Any:
        """Evaluates an (async) arrow function of JavaScript with `argument`; both are JSON."""
        call = f"async (json) => JSON.stringify(await ({function})(JSON.parse(json)))"
        value = (await self._call(call, orjson.dumps(argument).decode())).get("value")
        return None if value is None else orjson.loads(value)

    async def click(self, selector: str) -> None:
        """With the mouse, as users do: sound may begin then. The element may move while the page grows."""
        find = """(selector) => {
            const element = document.querySelector(selector);
            element.scrollIntoView({ block: "center" });
            return element;
        }"""
        found = await self._call(find, selector)
        await self.mouse.click(0, 0, of={"sharedId": found["sharedId"]})

    async def _call(self, function: str, argument: str) -> dict[str, Any]:
        told = await self._bidi.send(
            "script.callFunction",
            functionDeclaration=function,
            arguments=[{"type": "string", "value": argument}],
            target={"context": self._context},
            awaitPromise=True,
        )
        if told["type"] != "success":
            raise RuntimeError(told["exceptionDetails"]["text"])
        result: dict[str, Any] = told["result"]
        return result

    async def until_text(self, selector: str, pattern: str) -> str:
        """Waits for an element's text until it matches."""
        text: str = await self.evaluate(
            """({ selector, pattern }) => new Promise((resolve) => {
                const look = () => {
                    const text = document.querySelector(selector).textContent;
                    if (new RegExp(pattern).test(text)) resolve(text);
                    else setTimeout(look, 20);
                };
                look();
            })""",
            {"selector": selector, "pattern": pattern},
        )
        return text


class Firefox:
    def __init__(self, bidi: Bidi) -> None:
        self._bidi = bidi

    @contextlib.asynccontextmanager
    async def page(self) -> AsyncIterator[FirefoxPage]:
        """A tab. Whatever the browser complains of fails the test."""
        context = (await self._bidi.send("browsingContext.create", type="tab"))["context"]
        self._bidi.complaints.clear()
        yield FirefoxPage(self._bidi, context)
        await self._bidi.send("browsingContext.close", context=context)
        complaints = list(self._bidi.complaints)
        assert complaints == []


@contextlib.asynccontextmanager
async def running(program: str, *arguments: str, home: Path, **environment: str) -> AsyncIterator[asyncio.StreamReader]:
    """A process that does not outlive the test, with a home of its own; yields its stderr."""
    process = await asyncio.create_subprocess_exec(
        *(program, *arguments),
        env={**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(home), **environment},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        yield process.stderr
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def firefox(program: str, home: Path, sound: str) -> AsyncIterator[Firefox]:
    """`sound`: where a PulseAudio listens; it may be none, which is a machine without an audio device."""
    (home / "profile").mkdir()
    # As Chromium has it: http, and no localhost.
    (home / "profile/user.js").write_text('user_pref("network.dns.localDomains", "insecure.test");\n')
    arguments = ("--headless", "--no-remote", "--profile", str(home / "profile"), "--remote-debugging-port", "0")
    async with running(program, *arguments, home=home, PULSE_SERVER=sound) as errors:
        while (found := LISTENS.search(line := await errors.readline())) is None:
            assert line, "Firefox ended"
        draining = asyncio.create_task(errors.read())
        async with connect(f"{found[1].decode()}/session", max_size=None) as socket:
            bidi = Bidi(socket)
            reading = asyncio.create_task(bidi.read())
            await bidi.send("session.new", capabilities={})
            await bidi.send("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
            served = [{"type": "pattern", "pathname": f"/test/{name}"} for name in SERVED]
            await bidi.send("network.addIntercept", phases=["beforeRequestSent"], urlPatterns=served)
            yield Firefox(bidi)
            reading.cancel()
        draining.cancel()


@contextlib.asynccontextmanager
async def loudspeaker(program: str, home: Path) -> AsyncIterator[str]:
    """A PulseAudio with a device that swallows all in real time; yields what PULSE_SERVER has to say."""
    socket = home / "loudspeaker"
    modules = ("module-null-sink", f"module-native-protocol-unix auth-anonymous=1 socket={socket}")
    options = ("-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--disable-shm=yes", "-v")
    loads = [part for module in modules for part in ("-L", module)]
    async with running(program, *options, *loads, home=home) as told:
        while b"startup complete" not in (line := await told.readline()):
            assert line, "PulseAudio ended"
        draining = asyncio.create_task(told.read())
        yield f"unix:{socket}"
        draining.cancel()
