"""What all checks of an answer file share: the reference, the findings, and access to settings."""

import re

from answerfile.document import Node

PLACEHOLDER = re.compile(r"\$\{[^}]*\}|\{\{.*\}\}|\{%.*%\}|@[A-Z_]+@|<%.*%>")


class Checks:
    """The base of the checks."""

    def __init__(self, path, options, reference):
        self.path, self.options = path, options
        self.components = reference["components"]
        self.lower = {name.lower(): name for name in self.components}
        self.removed = {(r["component"].lower(), r.get("setting", "")): r for r in reference["removed"]}
        self.gvlk = {g["key"]: g for g in reference["gvlk"]}
        self.passes = reference["meta"]["passes"]
        self.findings = []
        self.found = {}  # (pass, component) -> [component nodes]

    def report(self, where, code, message):
        line = where.line if isinstance(where, Node) else where
        item = (line, code, message)
        if item not in self.findings:
            self.findings.append(item)

    def placeholder(self, text):
        return bool(PLACEHOLDER.fullmatch(text) or (self.options.template and re.fullmatch(r"%[A-Za-z_]+%", text)))

    def get(self, pass_name, component):
        return self.found.get((pass_name, component), [])

    def each(self, component, path, passes=None):
        """Nodes at a path of a component, in all passes or those named."""
        return [n for p in (passes or self.passes) for c in self.get(p, component) for n in c.all(path)]
