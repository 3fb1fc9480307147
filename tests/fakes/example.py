"""The examples in docs/api.md: tests run them."""

from __future__ import annotations

import re
from pathlib import Path
from types import CodeType

PAGE = Path(__file__).parents[2] / "docs/api.md"


def code(section: str) -> CodeType:
    """The one block of Python under a heading."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return compile(block, f"{PAGE.name}: {section}", "exec")
