"""Gives each socket that is let in a conversation, in the protocol of the path by which it came, and serves it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from voicegate.engine.interface import EngineInfo
from voicegate.gateway.server.conversations.binding import Binding
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.resumption import Resumption
from voicegate.gateway.server.conversations.translation import translator_of
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.websocket.bounded_socket import BoundedSocket
from voicegate.gateway.server.websocket.connection import Connection
from voicegate.protocol.dialects.catalogue import find_dialect, idle_s_of


class SocketHandler:
    def __init__(
        self,
        stage: Stage,
        resumption: Resumption,
        info: Callable[[], EngineInfo | None],
        *,
        on_greeted: Callable[[Conversation], None],
    ) -> None:
        """`info`: None until the engine is ready. `on_greeted` tells it what others were told meanwhile."""
        self._services = stage.services
        self._guests = stage.guests
        self._voice_names = stage.voice_names
        self._resumption = resumption
        self._info = info
        self._on_greeted = on_greeted

    async def serve(self, websocket: BoundedSocket) -> None:
        info = self._info()
        assert info is not None, "no socket is let in before the engine is ready"
        assert websocket.request is not None, "nor before it was read"

        make_dialect = find_dialect(websocket.request.path)
        services = self._services
        if make_dialect is not None:
            limits = services.limits.of_a_dialect(idle_s_of(websocket.request.path))
            services = replace(services, limits=limits)

        def converse(token: str = "") -> Conversation:
            return Conversation(
                services,
                session_id=websocket.session_id,
                info=info,
                owner=websocket.owner,
                caller=websocket.caller,
                token=token,
            )

        if make_dialect is None:
            binding = self._resumption.begin(converse)
        else:
            conversation = converse()
            translator = translator_of(make_dialect, conversation, self._voice_names, self._info)
            binding = Binding(conversation, translator)
        connection = Connection(websocket, binding, self._resumption)
        self._services.meters.note_socket()
        with self._guests.present(connection):
            # After its greeting.
            asyncio.get_running_loop().call_soon(self._on_greeted, connection.conversation)
            await connection.run()
