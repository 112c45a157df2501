"""The Python client: what its users need to know by name. `voicegate` has all of it too."""

from voicegate.clients.python.audio import Audio
from voicegate.clients.python.backoff import Backoff
from voicegate.clients.python.client import Gate, OpenOptions, connect
from voicegate.clients.python.context import Context
from voicegate.clients.python.dialing import LinkOptions
from voicegate.clients.python.errors import (
    ConnectFailed,
    ConnectionLost,
    ContextClosed,
    ContextFailed,
    GateError,
    InvalidInput,
    MissingDependency,
    ReaderTooSlow,
)
from voicegate.clients.python.files import write_audio
from voicegate.clients.python.playback import SoundCard
from voicegate.protocol.messages import Cancelled, Done, Format

__all__ = [
    "Audio",
    "Backoff",
    "Cancelled",
    "ConnectFailed",
    "ConnectionLost",
    "Context",
    "ContextClosed",
    "ContextFailed",
    "Done",
    "Format",
    "Gate",
    "GateError",
    "InvalidInput",
    "LinkOptions",
    "MissingDependency",
    "OpenOptions",
    "ReaderTooSlow",
    "SoundCard",
    "connect",
    "write_audio",
]
