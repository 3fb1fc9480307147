"""A lab whose create was killed a few times, at points that change with the date; `make survive` runs all of them."""

from __future__ import annotations

from harness import Second
from survive import sample
from survive.moments import stays_done


def test_killed_creates_are_resumed(second: Second) -> None:
    """SIGKILL; during the boot SIGKILL or SIGTERM. Nothing outlives its winlab, no finished step is done again.
    That the lab came up all the same is the other tests' matter, and that it leaves nothing behind
    test_destroy_leaves_the_host_as_it_was's.
    """
    how = f"{sample.VARIABLE}={sample.seed()} repeats: " + "; ".join(map(str, second.killed))
    assert [str(one.outcome.fired[0][0].step) for one in second.killed][-2:] == [
        "start controller-1",
        "boot controller-1",
    ], how
    assert all(one.outcome.code == (-9 if one.number == 9 else 130) for one in second.killed), how
    assert not any(one.outcome.left for one in second.killed), how
    done = set()
    for event in second.journal:
        assert (event["event"], event.get("step") in done) != ("StepStarted", True), f"{event['step']}: {how}"
        if event["event"] == "StepDone" and stays_done(event["step"]):
            done.add(event["step"])
    assert "start controller-1" in done


def test_a_first_boot_that_was_cut_off_starts_over(second: Second) -> None:
    """Its QEMU was killed. Without a new disk cloud-init may fail for good: what it has just written may be empty."""
    failed = [(event["step"], event["failure"]) for event in second.journal if event["event"] == "StepFailed"]
    assert (second.cut_off, *(step for step, _ in failed[-1:])) == (9, "boot controller-1"), failed
    said = [event["text"] for event in second.last if event["event"] == "StepProgress"]
    assert any("its first boot was cut off" in text for text in said), said
    assert "boot controller-1" in [event["step"] for event in second.last if event["event"] == "StepDone"]
