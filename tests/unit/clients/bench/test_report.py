"""Results of a run: table, files and the page, from records made by hand."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from tests.unit.clients.bench.test_judge import RECORD, SECOND, altered
from voicegate.clients.bench import html_report, svg, table
from voicegate.clients.bench.judge import figures
from voicegate.clients.bench.plan import Outcome
from voicegate.clients.bench.results import EVENTS_FILE, ROWS_FILE, Results

CLIENTS = {"are_late": False, "loop_lag_p99_ms": 1.0}
RECORDS = [
    RECORD,
    altered(arrivals=((10.2, SECOND // 2), (11.2, SECOND)), message="<b>slow & sorry</b>"),
    altered(outcome=Outcome.CANCELLED, cancelled_s=10.5, stopped_s=10.51),
    altered(outcome=Outcome.REFUSED, arrivals=(), message="overloaded: no room"),
]


def row(**clients: object) -> dict[str, Any]:
    return {**figures(RECORDS, window_s=(5.0, 20.0)), "clients": CLIENTS | clients}


def report() -> dict[str, Any]:
    return {
        "target": {"url": "ws://here"},
        "environment": {"cpu": "one <fast> cpu", "gpu": None},
        "scenarios": {"closed:2:whole": row(), "closed:8:whole": row(), "mixed:4": row(), "live:9:whole": None},
    }


def test_rows_stand_under_their_heading() -> None:
    names, _ = table.heading().splitlines()
    shown, first, more, *remarks = table.lines("mixed:400", row(are_late=True, loop_lag_p99_ms=31.0))
    assert len(shown) == len(names)
    assert shown.startswith("mixed:400 ")
    assert "130  100/190/190/-" in shown, "mean, p50, p90, p95, p99"
    assert (first, more) == (
        "    rtf p50 0.49; second chunk after 890 ms, -500 ms ahead of the player at least; interrupted:",
        "    stopped after 10 ms, last audio after 0 ms at most",
    )
    assert remarks == [
        "  ! 1 refused",
        "  ! <b>slow & sorry</b>",
        "  ! overloaded: no room",
        "  ! the clients themselves were up to 31 ms late: this machine is too busy to measure on",
    ]


def test_of_a_mixed_load_every_writer_is_told() -> None:
    records = [RECORD, altered(words_per_s=10.0, arrivals=((10.21, SECOND), (11.5, SECOND)))]
    mixed = {**figures(records, window_s=(5.0, 20.0)), "clients": CLIENTS}
    told = " ".join(line.strip() for line in table.lines("mixed:2", mixed))
    assert "whole: 100/100 ms, C100 100.0%; 10 words/s: 200/200 ms, C100 0.0%" in told
    assert "C100 100.0%" not in " ".join(table.lines("closed:1:whole", {**row(), "clients": CLIENTS})[1:])


def test_texts_that_were_late_are_told() -> None:
    """A client without a free connection waits for one before its text is sent, from which first audio counts."""
    late = [altered(lag_s=0.3), altered(lag_s=0.31, is_slow=True), *[altered(lag_s=0.004)] * 8]
    opened = {**figures(late, window_s=(5.0, 20.0)), "clients": CLIENTS | {"num_late_connections": 1}}
    *_, remark = table.lines("live:9:whole", opened)
    assert remark == (
        "  ! texts were sent 300 ms late at p95, and first audio counts from then; "
        "connections that had to be opened first: 1"
    )
    # A slow reader's connection is opened for it, and it is told of apart.
    few = {**figures(late[1:], window_s=(5.0, 20.0)), "clients": CLIENTS}
    assert not any("late" in line for line in table.lines("mixed:9", few))


def test_what_is_left_behind_is_told() -> None:
    *_, remark = table.lines("mixed:4", {**row(), "left_behind": {"utterances": 2, "contexts": 2, "after_ms": 3050}})
    assert remark == "  ! 2 utterances still ran 3050 ms after everybody had left"
    assert table.lines(
        "mixed:4", {**row(), "left_behind": {"utterances": 0, "contexts": 0, "after_ms": 9}}
    ) == table.lines("mixed:4", row())


def test_files_grow_with_the_run(tmp_path: Path) -> None:
    results = Results(tmp_path / "new", {"cpu": "x"})
    results.add_records("mixed:4", 10.0, RECORDS)
    results.add_row("mixed:4", row())
    events = [json.loads(line) for line in (tmp_path / "new" / EVENTS_FILE).read_text().splitlines()]
    assert [event["outcome"] for event in events] == ["done", "done", "cancelled", "refused"]
    assert events[0]["scenario"] == "mixed:4"
    assert events[0]["arrivals"] == [[0.11, SECOND], [1.0, SECOND]]
    assert (events[2]["cancelled_s"], events[2]["stopped_s"], events[0]["stopped_s"]) == (0.5, 0.51, None)
    saved = json.loads((tmp_path / "new" / ROWS_FILE).read_text())
    assert saved["scenarios"]["mixed:4"]["outcomes"]["refused"] == 1


def test_the_page_has_its_charts_and_no_mark_up_of_others() -> None:
    page = html_report.page(report(), {"mixed:4": RECORDS, "empty": []})
    charts = [ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>") for part in page.split("<svg")[1:]]
    assert [chart.attrib["aria-label"] for chart in charts] == [
        "First audio against the number of streams",
        "Distribution of the time to first audio",
        "Playback in mixed:4",
    ]
    kinds = {rect.attrib["class"] for rect in charts[2].iter("{http://www.w3.org/2000/svg}rect")}
    assert kinds == {"wait", "play", "gap", "stop"}
    assert "<b>slow" not in page
    assert "one &lt;fast&gt; cpu" in page


def test_the_page_says_what_was_sustained_and_by_which_objective() -> None:
    found = {"form": "live:20j", "num_streams": 7, "is_limit": False}
    objective = {"first_audio_p95_ms": 250.0, "c100": 0.99, "rtf_p99": 1.0}
    page = html_report.page({**report(), "sustained": found | objective}, {})
    wanted = "first audio p95 within 250 ms, C100 of 99.0% and RTF p99 under 1."
    assert f"<p>Sustained: <b>7 streams</b> of live:20j, with {wanted}</p>" in page


def test_files_from_before_some_figures_are_shown_without_them() -> None:
    def older(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        newer = {"mean", "p90", "headroom_ms", "last_audio_ms", "by_prebuffer_ms", "left_behind", "connect_ms"}
        newer |= {"continuity_by_writer"}
        return {name: older(each) for name, each in node.items() if name not in newer}

    assert older(row()) != row()
    assert "-  100/-/190/-" in table.lines("mixed:4", older(row()))[0]
    assert html_report.page(older(report()), {}).endswith("</html>\n")


def test_a_page_of_nothing_is_a_page() -> None:
    page = html_report.page({"environment": {}, "scenarios": {}}, {})
    assert page.endswith("</html>\n")
    assert "<svg" not in page


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (svg.Axis("", 0, 100), [0, 20, 40, 60, 80, 100]),
        (svg.Axis("", 0, 0.7), [0, 0.2, 0.4, 0.6]),
        (svg.Axis("", 1, 128, is_log=True), [1, 2, 5, 10, 20, 50, 100]),
        (svg.Axis("", 5, 5), []),
    ],
)
def test_ticks_are_round(axis: svg.Axis, ticks: list[float]) -> None:
    assert [each for each in axis.ticks() if axis.high > axis.low] == pytest.approx(ticks)
    assert 0 <= axis.share(axis.low) <= 1


def test_records_travel_as_they_are() -> None:
    assert msgspec.json.decode(msgspec.json.encode(RECORD), type=type(RECORD)) == RECORD
