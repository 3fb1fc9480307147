"""The view from another terminal of the shared lab: its events, its timeline, and status --watch until Ctrl-C."""

from __future__ import annotations

import itertools
import json
import signal
from pathlib import Path

import results
from harness import LAB_A, Labs, Second, Winlab, text


def test_the_create_that_made_the_lab(labs: Labs, tmp_path: Path) -> None:
    page, trace = tmp_path / "run.html", tmp_path / "run.json"
    text(labs.a("timeline", "--run", "1", "--html", str(page), "--trace", str(trace)))
    run = results.item(text(labs.a("timeline", "--run", "1", "--output", "json")))
    assert (run["command"], run["state"], run["done"]) == ("create", "done", run["total"])
    path = [run["steps"][link["number"] - 1] for link in run["critical_path"]]
    assert {"boot controller-1", "init controller-1"} & {step["step"] for step in path}
    for before, step in itertools.pairwise(path):
        assert before["number"] in step["after"]
        assert before["begun"] + before["seconds"] <= step["begun"] + 1
    assert path[-1]["begun"] + path[-1]["seconds"] > run["seconds"] - 5
    assert "join node-1" in page.read_text()
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"boot node-1", "ready node-1", "thread_name"} <= names


def test_an_interrupted_create_and_the_one_that_resumed_it(second: Second) -> None:
    runs = results.items(text(second.lab("timeline", "--run", "all", "--output", "json")))
    states = [run["state"] for run in runs]
    assert states[-1] == "done"
    assert "interrupted" in states
    others = {"killed (no final event)", "failed"}  # it was killed, and once its machine
    assert others <= set(states) <= {"done", "interrupted", *others}
    last = text(second.lab("events", "--run", str(len(runs)), "--output", "json"))
    kinds = [event["event"] for event in results.items(last)]
    assert (kinds[0], kinds[-1]) == ("RunStarted", "RunEnded")
    assert "StepProgress" in kinds


def test_a_lab_is_watched_until_ctrl_c(labs: Labs, winlab: Winlab) -> None:
    watching = winlab.start("status", "--watch", "--lab", LAB_A, "--output", "json")
    with watching:
        assert watching.stdout is not None
        for line in watching.stdout:
            view = results.item(line)
            if [node["state"] for node in view["nodes"]][:2] == ["running", "running"] and all(
                node["answers"] is not None for node in view["nodes"]
            ):
                break  # it logged in to both
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert (view["lab"], view["worker"]) == (LAB_A, None)
    assert view["run"]["state"] != "running"
