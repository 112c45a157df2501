"""The result file of bench.peers, which a later run goes on with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicegate.bench import environment, results_file


class Kept:
    def __init__(self, path: Path, conditions: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> None:
        """`settings` of servers by name. Raises ValueError where the file has others, other loads or another card.

        It is written at once, so that hours of loads are not for nothing. ValueError also where that does not go.
        """
        self._path = path
        here = {**conditions, "gpu": environment.describe()["gpu"]}
        self.report: dict[str, Any] = {"conditions": here, "servers": {}}
        if path.exists():
            self._go_on(here, settings)
        try:
            self.save()
        except OSError as error:
            raise ValueError(f"{path} cannot be written ({error}): name another --json") from error

    def _go_on(self, here: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> None:
        path = self._path
        try:
            report = json.loads(path.read_text())
            servers, was = report["servers"], report["conditions"]
            measured = {name: server for name, server in servers.items() if server["loads"] or "figures" in server}
            found = {name: server["settings"] for name, server in measured.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is no result of bench.peers ({error!r}): name another --json") from error
        if not found:
            return
        if was != here:
            raise ValueError(f"{path} is of {was}, not of {here}: name another --json")
        for name in found.keys() & settings.keys():
            if changed := _changed(found[name], settings[name]):
                raise ValueError(f"{path} has {name} with other {', '.join(changed)}: name another --json")
        self.report = report

    def server(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = self.report["servers"].setdefault(name, {"loads": {}})
        if not kept["loads"]:
            kept.clear()
            kept.update(environment=environment.describe(), settings=dict(settings), loads={})
        kept.pop("failed", None)
        return kept

    def save(self) -> None:
        results_file.save(self.report, self._path)


def _changed(found: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Words about them may change; what ran may not."""
    here: dict[str, Any] = json.loads(json.dumps(settings))
    return sorted(name for name in (found.keys() | here.keys()) - {"flattery"} if found.get(name) != here.get(name))
