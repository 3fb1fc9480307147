"""What ``winlab plan`` shows."""

from __future__ import annotations

import plans
import pytest

from winlab.cli import plan_view


def test_add_ons_are_shown_with_what_was_set(capsys: pytest.CaptureFixture[str]) -> None:
    plan_view.show(plans.make(plans.KVM, "1-1-1", "addons.metrics-server.resolution=20"))
    assert "metrics-server resolution=20" in capsys.readouterr().out
    plan_view.show(plans.make(plans.KVM, "1-1-1"))
    assert "add-on" not in capsys.readouterr().out
