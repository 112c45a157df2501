"""The protocols that the bench speaks, by name."""

from collections.abc import Mapping
from typing import Final

from voicegate.clients.bench.dialects import native
from voicegate.clients.bench.dialects.conversation import Connect

DIALECTS: Final[Mapping[str, Connect]] = {"native": native.connect}
