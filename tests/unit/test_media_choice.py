"""What would stop Setup with a question on the screen is said before anything boots."""

from __future__ import annotations

from pathlib import Path

import plans
import pytest

from winlab.errors import UsageError
from winlab.media import windows_iso
from winlab.media.wim import WimImage
from winlab.steps.images import check_windows_media

NAME = "Windows Server 2022 SERVERDATACENTERCORE"
KEY = "AAAAA-BBBBB-CCCCC-DDDDD-EEEEE"


@pytest.mark.parametrize(
    ("edition", "language", "name", "key", "says"),
    [
        ("ServerDatacenterEval", "en-US", NAME, None, None),
        ("ServerDatacenter", "en-US", NAME, KEY, None),
        ("ServerDatacenterEval", "en-US", NAME, KEY, "takes no product key"),
        ("ServerDatacenter", "en-US", NAME, None, "asks for a product key"),
        ("ServerDatacenterEval", "de-DE", NAME, None, "speaks de-DE"),
        ("ServerDatacenterEval", "en-US", "Windows 11 Pro", None, "has no image named"),
    ],
)
def test_media(
    monkeypatch: pytest.MonkeyPatch, edition: str, language: str, name: str, key: str | None, says: str | None
) -> None:
    plans.fixed_keys(monkeypatch)
    image = WimImage(1, name, name, edition, "Server Core", language, 20348)
    monkeypatch.setattr(windows_iso, "images", lambda path: [image])
    monkeypatch.setattr(windows_iso, "no_prompt_patch", lambda path: None)
    changes = [f"workers.product_key={key}"] if key else []
    node = plans.make(plans.KVM, "1-1-1", *changes).node("node-1")
    if says is None:
        check_windows_media(node, Path("w.iso"))
        return
    with pytest.raises(UsageError, match=says) as caught:
        check_windows_media(node, Path("w.iso"))
    assert caught.value.cure
