"""Units, currencies and magnitudes as they stand at a number in Chinese text: how they are read."""

from typing import Any, Final

from voicegate.engine.text import cldr
from voicegate.engine.text.data_files import read_data

_DATA: Final = read_data("chinese", dict[str, Any])
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
SPELLED_SIGNS: Final[dict[str, str]] = _DATA["spelled_signs"]
