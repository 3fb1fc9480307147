"""The page and the trace: nothing in them runs, no bar overlaps another one of its row, whatever the journal says."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from html.parser import HTMLParser

import histories
import pytest
from histories import PLANNED, Script
from lxml import etree

from winlab.errors import NotFoundError, UsageError
from winlab.events import Planned
from winlab.history import page
from winlab.history.runs import History
from winlab.history.timeline import Timeline, chosen

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&</title></style>"


def timeline(*scripts: Script) -> Timeline:
    history = History([event for script in scripts for event in script.events])
    history.finish()
    return Timeline("lab", tuple(history.runs))


class Tags(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.every: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.every.append((tag, dict(attrs)))


def test_the_page_has_bars_and_the_critical_path() -> None:
    text = timeline(histories.whole()).html()
    assert text.count('<rect class="done critical"') == 4
    assert text.count('<rect class="done"') == 1
    assert "4 steps, which took 1:39, and 0:01 between them" in text
    assert "prefers-color-scheme: dark" in text


def test_nothing_on_the_page_runs_or_loads() -> None:
    planned = (Planned(EVIL, EVIL, "lab", EVIL, 1.0), Planned(EVIL, EVIL, "lab", "", 1.0))
    script = Script(planned=planned, command=EVIL, user=EVIL, version=EVIL).step("started", 1, 0)
    script.step("progress", 1, 1, text=EVIL).step("failed", 1, 2, what=EVIL).end(3, exit_code=9)
    text = Timeline(EVIL, timeline(script).runs).html()
    tags = Tags(text).every
    assert {tag for tag, _ in tags} & {"script", "img", "link", "iframe", "a", "image", "use"} == set()
    names = {name for _, attributes in tags for name in attributes}
    assert not {name for name in names if name.startswith("on")}
    assert names & {"src", "href"} == set()
    assert "default-src 'none'" in text
    assert sum(tag == "style" for tag, _ in tags) == 1


def test_the_chart_is_well_formed() -> None:
    (run,) = timeline(histories.whole()).runs
    root = etree.fromstring(page.chart(run, []).encode())
    assert root.get("viewBox", "").startswith("0 0 ")


def test_a_killed_run_shows_its_last_sign_of_life() -> None:
    text = timeline(Script().did(1, 0, 2).step("started", 2, 3)).html()
    assert "killed (no final event); last heard of at 2023-11-14" in text
    assert "Not begun: boot a, disk b, join a." in text


def test_huge_texts_and_odd_times_are_cut() -> None:
    huge = "x" * 3_000_000
    planned = (Planned(huge, "r", "lab", huge, 1e11),)
    script = Script(planned=planned, began=9e10).step("started", 1, 0).step("progress", 1, 1, text=huge)
    assert len(page.chart(timeline(script).runs[0], [])) < 20_000
    assert timeline().html().count("There is no run in the journal.") == 1
    assert page.moment(9e14)


def nests(events: list[dict[str, object]]) -> bool:
    """Whether the complete events of each thread nest, as the format demands."""
    threads: dict[object, list[tuple[int, int]]] = {}
    for event in events:
        if event["ph"] == "X":
            begin, took = int(str(event["ts"])), int(str(event["dur"]))
            threads.setdefault((event["pid"], event["tid"]), []).append((begin, begin + took))
    for spans in threads.values():
        spans.sort()
        if any(later[0] < first[1] for first, later in itertools.pairwise(spans)):
            return False
    return True


def test_the_trace_has_a_process_for_each_node() -> None:
    made = json.loads(json.dumps(timeline(histories.whole()).trace()))
    events = made["traceEvents"]
    processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    assert list(processes) == ["lab", "a", "b", "critical path"]
    boot = next(e for e in events if e["name"] == "boot a")
    assert (boot["ph"], boot["ts"], boot["dur"], boot["pid"]) == ("X", 3_000_000, 67_000_000, processes["a"])
    assert boot["args"]["critical"] is True
    assert sum(e["pid"] == processes["critical path"] and e["ph"] == "X" for e in events) == 4
    assert nests(events)


def test_steps_that_overlap_are_on_threads_of_their_own() -> None:
    planned = (*PLANNED[:2], replace(PLANNED[3], node="a"))
    script = Script(planned=planned).did(1, 0, 2).did(2, 2, 5).did(3, 3, 4)
    events = timeline(script).trace()["traceEvents"]
    assert nests(events)
    assert len({e["tid"] for e in events if e["ph"] == "X" and e["name"].startswith("disk")}) == 2
    assert not nests([{**e, "tid": 1} for e in events])


def test_runs_follow_one_another_even_if_the_clock_went_back() -> None:
    earlier = Script("r2", began=histories.BEGAN - 5000).did(1, 0, 2).did(2, 2, 3)
    events = timeline(histories.whole(), earlier).trace()["traceEvents"]
    assert nests(events)
    assert min(e["ts"] for e in events) == 0
    assert timeline().trace()["traceEvents"] == []


def test_a_run_is_chosen_by_its_number() -> None:
    runs = timeline(histories.whole(), Script("r2")).runs
    assert chosen("lab", runs, "last") == runs[1:]
    assert chosen("lab", runs, "all") == runs
    assert chosen("lab", runs, 1) == runs[:1]
    for number in (0, 3, -1):
        with pytest.raises(UsageError, match="no run"):
            chosen("lab", runs, number)
    with pytest.raises(NotFoundError, match="no run yet"):
        chosen("lab", (), "last")


def test_the_document_has_every_step_and_the_path() -> None:
    (run,) = json.loads(json.dumps(timeline(histories.whole()).document()))["runs"]
    assert [one["number"] for one in run["critical_path"]] == [1, 2, 3, 5]
    assert run["steps"][4]["after"] == [1, 3]
    assert (run["state"], run["seconds"]) == ("done", 100)
