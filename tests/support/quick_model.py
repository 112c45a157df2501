"""The tiny model, of whose flow one Euler step is asked: servers start and speak in less time, and sound worse."""

import json
from pathlib import Path

from tests.support.golden import TINY_MODEL_DIR


def quick_model(folder: Path) -> Path:
    """A model directory at `folder`, whose files are links but for model.json."""
    folder.mkdir()
    for path in TINY_MODEL_DIR.iterdir():
        if path.name != "model.json":
            (folder / path.name).symlink_to(path)
    raw = json.loads((TINY_MODEL_DIR / "model.json").read_text())
    raw["flow"]["decoder"]["cfm_params"]["inference_steps"] = 1
    (folder / "model.json").write_text(json.dumps(raw))
    return folder
