"""The names that a cluster's DNS knows: whole ones. Answers for pods' A records, over UDP, as kube-dns does."""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

_A_RECORD, _INTERNET, _ANSWERED, _NO_SUCH_NAME = 1, 1, 0x8580, 0x8583  # RFC 1035 sections 3.2 and 4.1
_QUESTION_AT = 12


class _ClusterDns(asyncio.DatagramProtocol):
    def __init__(self, addresses: Mapping[str, bytes]) -> None:
        self._addresses = addresses
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # uvloop's is none by its type

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        self._transport.sendto(self._answer(data), addr)

    def _answer(self, query: bytes) -> bytes:
        labels, at = [], _QUESTION_AT
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode())
            at += 1 + length
        (kind,) = struct.unpack_from(">H", query, at + 1)
        address = self._addresses.get(".".join(labels).lower()) if kind == _A_RECORD else None
        head = struct.pack(">HHHHH", _NO_SUCH_NAME if address is None else _ANSWERED, 1, address is not None, 0, 0)
        question = query[_QUESTION_AT : at + 5]
        record = b"" if address is None else struct.pack(">HHHIH", 0xC00C, _A_RECORD, _INTERNET, 5, 4) + address
        return query[:2] + head + question + record


@asynccontextmanager
async def cluster_dns(addresses: Mapping[str, bytes]) -> AsyncIterator[int]:
    """Yields its port on loopback."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _ClusterDns(addresses), ("127.0.0.1", 0))
    try:
        yield transport.get_extra_info("sockname")[1]
    finally:
        transport.close()
