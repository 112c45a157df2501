"""Where the tiny English model lies. `tiny` beside this file is a link to the repository's folder."""

from pathlib import Path
from typing import Final

MODEL_DIR: Final = Path(__file__).parent / "tiny"
