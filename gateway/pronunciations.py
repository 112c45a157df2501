"""The server's own dictionary of pronunciations: a JSON file. Raises ConfigError."""

from pathlib import Path
from typing import Final

import msgspec

from voicegate.engine.dictionary import Dictionary, DictionaryError
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.setting_files import read_setting_file

# Every word that is read is looked for in it. Higher -> more memory, and a reload holds the event loop for longer.
MAX_ENTRIES: Final = 20_000
_MAX_BYTES: Final = 8 << 20


class Pronunciations:
    """Pronunciations of the server's file, as it was when it was last read."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.dictionary: Dictionary | None = None
        self.reload()

    def reload(self) -> int | None:
        """Read the file again, for what is opened from here on; how many entries it has. A bad one changes nothing."""
        if self._path is None:
            return None
        self.dictionary = read_dictionary(self._path)
        return len(self.dictionary)


def read_dictionary(path: Path) -> Dictionary:
    try:
        entries = msgspec.json.decode(read_setting_file(path, _MAX_BYTES), type=dict[str, str])
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f'{path} is no dictionary of pronunciations, which is JSON such as {{"SQL": "sequel"}}: {error}'
        ) from error
    if len(entries) > MAX_ENTRIES:
        raise ConfigError(f"{path} has {len(entries)} entries; at most {MAX_ENTRIES}")
    try:
        return Dictionary(entries)
    except DictionaryError as error:
        raise ConfigError(f"{path}: {error}") from error
