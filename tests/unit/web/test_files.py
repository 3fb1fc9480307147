"""The pages' files: shipped packages are the published ones, and pages refer only to files that exist."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from winlab.web.files import HERE, NOVNC, XTERM, files, kind

# what the npm registry says of each: npm view @novnc/novnc@1.7.0 dist.integrity
PUBLISHED = {
    NOVNC: "ucEJOx4T2avIRCleodk7YobZj5O2Ga2AeLfQ69A/yjG9HHba2+PDgwSkN3FttrmG+70ZGx21sElNFouK13RzyA==",
    XTERM: "TQwDdQGtwwDt+2cgKDLn0IRaSxYu1tSUjgKarSDkUM0ZNiSRXFpjxEsvc/Zgc5kq5omJ+V0a8/kIM2WD3sMOYg==",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_packages_are_unchanged(name: str) -> None:
    digest = hashlib.sha512((HERE / "packages" / name).read_bytes()).digest()
    assert base64.b64encode(digest).decode() == PUBLISHED[name]


def test_their_licences_are_served_with_them() -> None:
    assert b"Mozilla" in files()["novnc/docs/LICENSE.MPL-2.0"]
    assert b"MIT" in files()["novnc/vendor/pako/LICENSE"]
    assert b"Permission is hereby granted" in files()["xterm/LICENSE"]


def test_pages_refer_to_files_that_exist() -> None:
    for name, text in files().items():
        if "/" not in name:
            assert not re.search(rb"<script>|\son\w+=\"", text), f"{name} has inline script, which the policy blocks"
            for path in re.findall(rb'(?:src|href)="/files/([^"]+)"|from "\./([^"]+)"', text):
                assert (path[0] or path[1]).decode() in files(), name


def test_browsers_take_modules_only_by_their_type() -> None:
    assert {kind("a.js"), kind("a.mjs")} == {"text/javascript"}
    assert kind("novnc/LICENSE.txt") == "text/plain"
