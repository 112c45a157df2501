"""The protocols that the bench speaks, by name."""

from collections.abc import Mapping
from typing import Final

from voicegate.clients.bench.dialects import native, openai, vendors
from voicegate.clients.bench.dialects.conversation import Connect

# In these one may ask for audio as fast as it is made. In the others a server may send it as fast as it is heard.
UNPACED: Final = ("native", "openai")
DIALECTS: Final[Mapping[str, Connect]] = {
    "native": native.connect,
    "openai": openai.connect,
    "elevenlabs": vendors.elevenlabs,
    "cartesia": vendors.cartesia,
    "deepgram": vendors.deepgram,
    "vllm-omni": vendors.vllm_omni,
    "kyutai": vendors.kyutai,
}
