"""Permission and places for making voices: those that are kept, and those of a request's own recording."""

import asyncio
import binascii
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Final

from starlette.requests import Request

from voicegate.engine.named_places import NamedPlaces
from voicegate.gateway.auth.access import Access
from voicegate.gateway.server.http.refused import Refused
from voicegate.gateway.server.http.visitor import key_in
from voicegate.gateway.session.quota import Owner
from voicegate.protocol.dialects.one_shot import Problem
from voicegate.protocol.errors import ErrorCode

# A minute of stereo at 48 kHz and 16 bit; engines take 30 s at most.
MAX_RECORDING_BYTES: Final = 12 * 1024 * 1024
MAX_RECORDING_CHARS: Final = MAX_RECORDING_BYTES * 4 // 3 + 1024  # of the same in base64, and of what stands around it
# Recordings on their way or with the engine. Each may be in memory; lower makes clients wait that send many at once.
# One client has fewer, because one that sends slowly keeps a place from others.
_MAX_UPLOADS: Final = 16
_MAX_UPLOADS_OF_ONE: Final = 4
# Voices that the engine makes at once; one for each client, because it may hang.
_MAX_MAKING: Final = 4
# For a place. Lower -> clients that send several at once are refused; higher -> they learn late that others hang.
_WAIT_S: Final = 30.0
# Read at a time: a millisecond. Higher holds up other clients' packets.
_PIECE_CHARS: Final = 256 * 1024

_NOT_ALLOWED: Final = "this server takes no voices by HTTP; start it with --enrolment, or use `voicegate voices add`"
_NO_KEY: Final = "only a key adds voices or takes them away, and a token is none"


class Enrolment:
    def __init__(self, access: Access, *, is_allowed: bool, max_voices: int) -> None:
        self._access = access
        self.is_allowed = is_allowed
        self.max_voices = max_voices
        self._uploads = NamedPlaces(_MAX_UPLOADS_OF_ONE), asyncio.Semaphore(_MAX_UPLOADS)
        self._makings = NamedPlaces(), asyncio.Semaphore(_MAX_MAKING)

    def check(self, request: Request) -> None:
        """A token is every visitor's of a page, and voices are the operator's. Raises Refused."""
        if not self.is_allowed:
            raise Refused(Problem(ErrorCode.UNSUPPORTED, _NOT_ALLOWED), HTTPStatus.FORBIDDEN)
        if self._access.asks_for_keys and key_in(request, self._access) is None:
            raise Refused(Problem(ErrorCode.UNAUTHORIZED, _NO_KEY), HTTPStatus.FORBIDDEN)

    @asynccontextmanager
    async def upload(self, owner: Owner) -> AsyncIterator[None]:
        """From before it is read to when the engine has it. Raises Refused."""
        async with self._place(self._uploads, owner, "recordings are on their way"):
            yield

    @asynccontextmanager
    async def making(self, owner: Owner) -> AsyncIterator[None]:
        """While the engine makes a voice. Raises Refused."""
        async with self._place(self._makings, owner, "voices are being made"):
            yield

    @asynccontextmanager
    async def _place(self, places: tuple[NamedPlaces, asyncio.Semaphore], owner: Owner, of: str) -> AsyncIterator[None]:
        client = owner.address if owner.key is None else f"key {owner.key.name}"
        async with AsyncExitStack() as held:
            whose = "of yours"
            try:
                async with asyncio.timeout(_WAIT_S):
                    await held.enter_async_context(places[0].hold(client))
                    whose = "of others"
                    await held.enter_async_context(places[1])
            except TimeoutError:
                message = f"{of} {whose}, and none was done within {_WAIT_S:g} s; try again later"
                raise Refused(Problem(ErrorCode.OVERLOADED, message, retry_after_ms=1000)) from None
            yield


async def decoded(base64: str) -> bytes:
    """With a turn of the others after each piece. Raises Refused."""
    content = bytearray()
    rest = ""  # of four characters that stand in two pieces
    for start in range(0, len(base64), _PIECE_CHARS):
        # By pieces too: a list of all words may take twenty times the text's memory.
        piece = rest + "".join(base64[start : start + _PIECE_CHARS].split())
        is_last = start + _PIECE_CHARS >= len(base64)
        end = len(piece) if is_last else len(piece) // 4 * 4
        piece, rest = piece[:end], piece[end:]
        try:
            content += binascii.a2b_base64(piece, strict_mode=True)
        except ValueError as error:
            message = f"ref_audio is not in base64 ({error})"
            raise Refused(Problem(ErrorCode.BAD_MESSAGE, message, field="ref_audio")) from error
        await asyncio.sleep(0)
    return bytes(content)
