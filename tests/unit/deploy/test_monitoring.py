"""Dashboard and alerts ask for what the server tells: every name, label and value, in expressions that can be read."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from tests.unit.test_documents import operations
from voicegate.engine.interface import EngineStats
from voicegate.gateway.server.metrics.exporter import Exporter
from voicegate.gateway.server.status import Status
from voicegate.gateway.session.observer import OUTCOMES
from voicegate.gateway.session.retention import Return
from voicegate.protocol.errors import ErrorCode

DEPLOY = Path(__file__).parents[3] / "deploy"
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
# Added by Prometheus itself.
SCRAPED_LABELS = {"job", "instance", "le"}
VALUES = {
    "job": {"voicegate"},
    "outcome": {*OUTCOMES, *(each.value for each in Return)},
    "code": {code.value for code in ErrorCode},
    "status": {"503"},
    "le": {"0.0"},
}
DURATION = re.compile(r"\d+[smhd]")


@cache
def told() -> dict[str, set[str]]:
    """Names of series, and the labels that each has."""
    own = EngineStats({"flow_seconds": 1.0, "flow_steps": 1.0})
    replicated = EngineStats(engines={"cuda:1": own}, hangs={"cuda:1": False})
    registry = Exporter(lambda: Status(None, None), lambda: replicated).registry
    names = {
        f"{family.name}{suffix}": labels_of(family, registry)
        for family in registry.collect()
        for suffix in SUFFIXES[family.type]
    }
    return names | {"up": set()}


def labels_of(family: Metric, registry: CollectorRegistry) -> set[str]:
    """As declared, also where there is no value yet."""
    declared = [each for each in list(registry._collector_to_names) if getattr(each, "_name", None) == family.name]
    if declared:
        return set(declared[0]._labelnames)  # type: ignore[attr-defined]
    return {label for sample in family.samples for label in sample.labels} - {"le"}


def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/voicegate.json").read_text())
    return document


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def expressions() -> Iterator[tuple[str, str]]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m")
    for rule in alerts():
        yield rule["alert"], rule["expr"]


def selectors(expression: Any) -> Iterator[Any]:
    """Selectors of series, anywhere in it."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for part in ("vector_selector", "expr", "lhs", "rhs", "args"):
        below = getattr(expression, part, None)
        for each in below if isinstance(below, list) else [below]:
            if each is not None:
                yield from selectors(each)


def grouped_by(text: str) -> set[str]:
    return {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", text) for label in group.split(",")}


@pytest.mark.parametrize(("title", "text"), list(expressions()))
def test_an_expression_asks_for_what_there_is(title: str, text: str) -> None:
    found = list(selectors(promql_parser.parse(text)))
    assert found, title
    labels = set(SCRAPED_LABELS)
    for selector in found:
        assert selector.name in told()
        labels |= told()[selector.name]
        for matcher in selector.matchers.matchers:
            assert matcher.name in labels
            if matcher.name != "instance":
                assert matcher.value in VALUES[matcher.name]
        assert any(matcher.name == "job" for matcher in selector.matchers.matchers), "others have an `up`, too"
    assert grouped_by(text) <= labels


def families_told() -> set[str]:
    return {re.sub("_(bucket|count|sum)$", "", name) for name in told()}


def test_operators_read_of_metrics_that_there_are() -> None:
    """In tables whose first column is of metrics, in prose by the ends that only metrics have, and in alerts."""
    text = operations()
    _, rows = text.split("| metric | tells |\n|---|---|\n")
    first = [row.split("|")[1] for row in rows.partition("\n\n")[0].splitlines()]
    named = [name for cell in first for name in re.findall(r"`([a-z_]{2,})(?:\{([a-z]+)\})?`", cell)]
    named += re.findall(r"`([a-z_]+_(?:total|seconds|limit|free|room))(?:\{([a-z]+)\})?`", text)
    named = [(f"voicegate_{name.removeprefix('voicegate_')}", label) for name, label in named if name[0] != "_"]
    named += [(name, "") for rule in alerts() for name in re.findall(r"voicegate_\w+", str(rule["annotations"]))]
    assert len(named) > 40
    assert {name for name, _ in named} - families_told() == set()
    labels = {name: told()[name if name in told() else f"{name}_count"] for name, _ in named}
    assert [(name, label) for name, label in named if label and label not in labels[name]] == []


def test_limits_are_told_of_all_that_is_said_to_have_one() -> None:
    for name in ("sockets", "contexts", "utterances", "waiting"):
        assert {f"voicegate_{name}", f"voicegate_{name}_limit"} <= families_told()


def test_what_is_told_is_shown() -> None:
    shown = {selector.name for _, text in expressions() for selector in selectors(promql_parser.parse(text))}
    ours = {name for name in told() if name.startswith("voicegate_")}
    families = {re.sub("_(bucket|count|sum|created)$", "", name) for name in ours - shown}
    assert families - {re.sub("_(bucket|count|sum)$", "", name) for name in shown} == {"voicegate_info"}


def test_an_alert_says_what_to_do() -> None:
    for rule in alerts():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "action"}
        assert DURATION.fullmatch(rule.get("for", "1m"))
    assert len({rule["alert"] for rule in alerts()}) == len(alerts())


def test_panels_have_their_places() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells


def test_the_dashboard_names_the_source_that_is_provisioned() -> None:
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    (variable,) = [each for each in dashboard()["templating"]["list"] if each["type"] == "datasource"]
    assert source["type"] == variable["query"]
    scraping = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    assert [job["job_name"] for job in scraping["scrape_configs"]] == ["voicegate"]
    assert scraping["rule_files"] == ["alerts.yml"]
