"""The golden pairs of protocol/vectors, which the browser client is tested against too."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from voicegate.protocol import audio_message, codec, messages
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.errors import ProtocolViolation

VECTORS = Path(codec.__file__).parent / "vectors"


def vectors(file_name: str) -> Any:
    rows = json.loads((VECTORS / file_name).read_text())
    assert len({row["name"] for row in rows}) == len(rows)
    return pytest.mark.parametrize("row", rows, ids=[row["name"] for row in rows])


@vectors("client_messages.json")
def test_client_messages_decode_to_their_fields(row: dict[str, Any]) -> None:
    message = codec.decode_client(row["json"])
    assert msgspec.to_builtins(message) == row["fields"]
    assert codec.decode_client(codec.encode(message)) == message


@vectors("server_messages.json")
def test_server_messages_encode_to_their_json(row: dict[str, Any]) -> None:
    message = codec.decode_server(row["json"])
    assert json.loads(codec.encode(message)) == row["fields"]


@vectors("bad_client_messages.json")
def test_bad_messages_say_what_is_wrong(row: dict[str, Any]) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        codec.decode_client(row["json"])
    assert caught.value.code.value == row["code"]
    assert row["message_contains"] in caught.value.message
    assert caught.value.context == row["context"]


@vectors("audio_messages.json")
def test_audio_messages_are_these_bytes(row: dict[str, Any]) -> None:
    fields = {**row["fields"], "packets": tuple(bytes.fromhex(packet) for packet in row["fields"]["packets"])}
    message = AudioMessage(**fields)
    assert audio_message.pack(message).hex() == row["hex"]
    assert audio_message.unpack(bytes.fromhex(row["hex"])) == message


@vectors("bad_audio_messages.json")
def test_bad_audio_messages_say_what_is_wrong(row: dict[str, Any]) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        audio_message.unpack(bytes.fromhex(row["hex"]))
    assert caught.value.code.value == row["code"]
    assert row["message_contains"] in caught.value.message


@pytest.mark.parametrize(
    ("file_name", "union"),
    [("client_messages.json", messages.ClientMessage), ("server_messages.json", messages.ServerMessage)],
)
def test_every_message_has_a_vector(file_name: str, union: Any) -> None:
    in_vectors = {row["fields"]["type"] for row in json.loads((VECTORS / file_name).read_text())}
    assert in_vectors == {member.__struct_config__.tag for member in union.__args__}
