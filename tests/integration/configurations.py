"""The lines of configuration that docs/compatibility.md gives for each client, to be run by tests."""

import re
from pathlib import Path

_DOCUMENT = Path(__file__).parents[2] / "docs/compatibility.md"
_PLACEHOLDER = "HOST:8080"


def configurations(client: str, address: str, language: str = "python") -> list[str]:
    """In the document's order. `address`: host and port of the server to speak to."""
    _, _, section = _DOCUMENT.read_text().partition(f"\n### {client}\n")
    section = re.split(r"^##", section, maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert blocks, f"the document says nothing of {client}"
    return [block.replace(_PLACEHOLDER, address) for block in blocks]
