"""Units, currencies and magnitudes as they stand at a number in Chinese text: how they are read. Of `data.toml`."""

import tomllib
from importlib import resources
from typing import Any, Final

from voicegate.engine.text import cldr

_DATA: Final[dict[str, Any]] = tomllib.loads((resources.files(__package__) / "data.toml").read_text(encoding="utf-8"))
_OF_CLDR: Final = "cldr:"

UNITS: Final[dict[str, str]] = {
    symbol: cldr.unit_names("zh", name.removeprefix(_OF_CLDR))[1] if name.startswith(_OF_CLDR) else name
    for symbol, name in _DATA["units"].items()
}
ONLY_ATTACHED: Final = frozenset(_DATA["unit_rules"]["only_attached"])
CURRENCIES: Final[dict[str, str]] = _DATA["currencies"]
MAGNITUDES: Final[dict[str, int]] = _DATA["magnitudes"]
CODE_WORDS: Final[str] = _DATA["patterns"]["code_words"]
CODE_WORD_START: Final[str] = _DATA["patterns"]["code_word_start"]
WRITTEN_CURRENCIES: Final[str] = _DATA["patterns"]["written_currencies"]
COUNTED: Final[str] = _DATA["patterns"]["counted"]
