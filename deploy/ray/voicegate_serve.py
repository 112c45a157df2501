"""The gateway under Ray Serve: a replica a GPU, each with a gateway and an engine in its process.

    serve run --app-dir deploy/ray voicegate_serve:app        # on nodes with ray[serve] and voicegate-tts[server,gpu]

Serve's proxies take the sockets and hand them to replicas; there they are passed on to the replica's gateway over
loopback, frame by frame. A session cannot be sent home by Serve, so none can be resumed here.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from ray import serve
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from voicegate.gateway.cli.local import build_engine
from voicegate.gateway.config import from_environment
from voicegate.gateway.logs import configure_logs
from voicegate.gateway.server.run import running_gateway

# Headers of one connection, or made anew for the next one.
_OWN_HEADERS: Final = {"connection", "upgrade", "content-length", "transfer-encoding", "keep-alive", "te", "trailer"}
_DROPPED: Final = (1005, 1006)  # no close frame came
_TRY_AGAIN_LATER: Final = 1013

front = FastAPI(openapi_url=None)


def _target(asked: Request | WebSocket) -> str:
    query = asked.url.query
    return f"{asked.url.path}?{query}" if query else asked.url.path


def _passed_on(asked: Request | WebSocket) -> dict[str, str]:
    """Host, origin and key among them: the gateway decides whom it lets in."""
    skipped = {*_OWN_HEADERS, *(name for name in asked.headers if name.startswith("sec-websocket-"))}
    headers = {name: value for name, value in asked.headers.items() if name not in skipped}
    if asked.client is not None:
        before = headers.get("x-forwarded-for")
        headers["x-forwarded-for"] = ", ".join(filter(None, (before, asked.client.host)))
    return headers


async def _pass_in(client: WebSocket, gateway: ClientConnection) -> None:
    try:
        while True:
            message: dict[str, Any] = dict(await client.receive())
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1005))
            text = message.get("text")
            await gateway.send(message["bytes"] if text is None else text)
    except WebSocketDisconnect as end:
        if end.code in _DROPPED:
            gateway.transport.abort()
        else:
            await gateway.close(end.code)
    except ConnectionClosed:
        pass  # told by the other direction


async def _pass_out(gateway: ClientConnection, client: WebSocket) -> None:
    try:
        while True:
            message = await gateway.recv()
            await (client.send_text(message) if isinstance(message, str) else client.send_bytes(message))
    except ConnectionClosed:
        if gateway.close_code is not None and client.client_state.name == "CONNECTED":
            await client.close(gateway.close_code if gateway.close_code not in _DROPPED else 1011, gateway.close_reason)
    except WebSocketDisconnect:
        pass  # told by the other direction


async def _body_of(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with answer:
        async for piece in answer.content.iter_any():
            yield piece


# Last: Serve packs the class as it finds it here, with what it refers to.
@serve.deployment(
    # A socket is one of Serve's requests, for as long as it lives: as many as the gateway lets in.
    max_ongoing_requests=1024,
    autoscaling_config={
        "min_replicas": 1,
        "max_replicas": 8,
        "target_ongoing_requests": 400,  # sockets of a replica; half of them speak
        "downscale_delay_s": 600,
    },
    ray_actor_options={"num_gpus": 1},
    # A replica that goes is given no new sockets, and has so long for those that it has.
    graceful_shutdown_timeout_s=140,
    health_check_period_s=5,
)
@serve.ingress(front)
class VoiceGateway:
    """`settings`: VOICEGATE_ variables, over those of the node."""

    async def __init__(self, settings: Mapping[str, str]) -> None:
        behind_serve = {"VOICEGATE_RESUME_S": "0", "VOICEGATE_TRUSTED_PROXIES": "127.0.0.0/8"}
        config = from_environment({**os.environ, **behind_serve, **settings})
        configure_logs(config.log_level, config.log_format)
        self._gateway = running_gateway(config, build_engine(config))
        stream_url = await self._gateway.__aenter__()
        self._origin = stream_url.rpartition("/v1/")[0]
        self._http = aiohttp.ClientSession(self._origin.replace("ws:", "http:"), auto_decompress=False)

    async def check_health(self) -> None:
        """Asked by Serve, which puts another in the place of a replica that raises."""
        async with self._http.get("/healthz") as answer:
            if answer.status != 200:
                raise RuntimeError(await answer.text())

    @front.websocket("/{path:path}")
    async def pass_socket(self, client: WebSocket) -> None:
        offered = [Subprotocol(name) for name in client.scope.get("subprotocols", [])]
        try:
            gateway = await connect_socket(
                f"{self._origin}{_target(client)}",
                subprotocols=offered or None,
                additional_headers=_passed_on(client),
                compression=None,
                max_size=None,
                proxy=None,
            )
        except InvalidStatus as refusal:
            reason = (refusal.response.body or b"").decode(errors="replace").strip()
            await client.close(_TRY_AGAIN_LATER, f"HTTP {refusal.response.status_code}: {reason}"[:120])
            return
        await client.accept(subprotocol=gateway.subprotocol)
        inwards = asyncio.create_task(_pass_in(client, gateway))
        try:
            await _pass_out(gateway, client)
        finally:
            inwards.cancel()
            await asyncio.gather(inwards, return_exceptions=True)
            await gateway.close()

    @front.api_route("/{path:path}", methods=["GET", "POST", "DELETE", "OPTIONS"])
    async def pass_request(self, request: Request) -> StreamingResponse:
        body = request.stream() if request.method == "POST" else None  # the gateway says when it is too long
        answer = await self._http.request(request.method, _target(request), headers=_passed_on(request), data=body)
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN_HEADERS}
        return StreamingResponse(_body_of(answer), answer.status, headers)


app = VoiceGateway.bind({})
