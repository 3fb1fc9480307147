"""Components, elements and values, against Microsoft's reference."""

import difflib
import re

from answerfile.checks import Checks
from answerfile.document import Finding

NS = "urn:schemas-microsoft-com:unattend"
WCM = "http://schemas.microsoft.com/WMIConfig/2002/State"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
MICROSOFT_KEY = "31bf3856ad364e35"  # the public key token of every component
ARCHES = ("amd64", "arm", "arm64", "ia64", "neutral", "wow64", "x86")

# required children that have a code of their own (W522, E507)
REPORTED_ELSEWHERE = {("AutoLogon", "LogonCount"), ("UserData", "AcceptEula")}


class Structure(Checks):
    """Checks of each setting by itself."""

    def check_document(self, root):
        if root.tag != "unattend" or root.ns != NS:
            raise Finding(
                root.line, "E105", f"root is <{root.tag}> in namespace '{root.ns}', expected <unattend> in '{NS}'"
            )
        seen = {}
        for node in root.kids:
            if node.ns != NS:
                if not node.ns or node.tag in ("settings", "servicing"):
                    self.report(node, "E106", f"<{node.tag}> is not in the unattend namespace")
                continue  # elements of other namespaces (cpi:offlineImage) are allowed here
            if node.tag == "servicing":
                continue
            if node.tag != "settings":
                self.report(node, "E106", f"<{node.tag}> does not belong directly under <unattend>")
                continue
            name = node.attrs.get(("", "pass"))
            if name not in self.passes:
                self.report(node, "E110", f"pass '{name}' is unknown" if name else "<settings> has no pass")
                continue
            if name in seen:
                self.report(node, "W111", f"pass {name} already stands at line {seen[name]}")
            seen.setdefault(name, node.line)
            self.check_pass(name, node)
        if root.text:
            self.report(root, "E109", "text inside <unattend>")

    def check_pass(self, name, settings):
        if settings.text:
            self.report(settings, "E109", f'text inside <settings pass="{name}">')
        groups = {}
        for node in settings.kids:
            if node.tag != "component" or node.ns != NS:
                self.report(node, "E106", f"<{node.tag}> does not belong directly under <settings>")
                continue
            component = self.check_component(name, node)
            arch = node.attrs.get(("", "processorArchitecture"), "")
            groups.setdefault(component or node.attrs.get(("", "name")), {}).setdefault(arch, []).append(node)
        for component, by_arch in groups.items():
            for nodes in by_arch.values():
                for node in nodes[1:]:
                    self.report(node, "E206", f"{component} already stands in pass {name} at line {nodes[0].line}")
            fits = {self.options.arch, "neutral"} | ({"wow64"} if self.options.arch == "amd64" else set())
            if not fits & set(by_arch):
                for arch, nodes in by_arch.items():
                    if arch in ARCHES:
                        self.report(
                            nodes[0],
                            "E202",
                            f"{component} is given for {arch} only, not for {self.options.arch}: Setup ignores it",
                        )
            ours = [n for a, nodes in by_arch.items() for n in nodes if a in fits] or [
                n for nodes in by_arch.values() for n in nodes
            ]
            self.found.setdefault((name, component), []).extend(ours)

    def check_component(self, pass_name, node):
        attrs = {local: value for (ns, local), value in node.attrs.items() if not ns}
        expected = {
            "publicKeyToken": (MICROSOFT_KEY,),
            "language": ("neutral",),
            "versionScope": ("nonSxS",),
            "processorArchitecture": ARCHES,
        }
        for name, allowed in expected.items():
            if name not in attrs:
                self.report(node, "E201", f"component has no {name}")
            elif self.options.template and self.placeholder(attrs[name]):
                continue
            elif attrs[name] not in allowed and attrs[name].lower() in [a.lower() for a in allowed]:
                self.report(node, "W208", f'{name}="{attrs[name]}", usually written {allowed[0]}')
            elif attrs[name] not in allowed:
                self.report(node, "E201", f'{name}="{attrs[name]}", expected {" or ".join(allowed)}')
        for name in set(attrs) - set(expected) - {"name", "version"}:
            self.report(node, "W108", f"attribute {name} on component")
        if node.text:
            self.report(node, "E109", "text inside <component>")
        name = attrs.get("name")
        if not name:
            self.report(node, "E201", "component has no name")
            return None
        if name not in self.components:
            if name.lower() in self.lower:
                self.report(node, "W205", f"{name}: the reference writes {self.lower[name.lower()]}")
                name = self.lower[name.lower()]
            elif (name.lower(), "") in self.removed:
                self.report(node, "W204", f"{name} was removed" + self.since(self.removed[(name.lower(), "")]))
                return name
            else:
                near = difflib.get_close_matches(name, self.components, 1, 0.8)
                self.report(
                    node,
                    "E203",
                    f"component {name} is not in the reference" + (f"; did you mean {near[0]}?" if near else ""),
                )
                return name
        facts = self.components[name]
        if facts.get("status"):
            self.report(node, "W204", f"{name} is {facts['status']}" + self.since(facts))
        if facts.get("basis"):
            self.report(node, "W314", f"{name} is not in this state of the reference ({facts['basis']})")
        in_pass = pass_name in facts["passes"]
        if not in_pass and node.kids:
            self.report(
                node,
                "E207",
                f"{name} has no setting that is valid in {pass_name} (valid: {', '.join(facts['passes'])})",
            )
        if facts["settings"]:
            self.check_children(name, "", node, pass_name if in_pass else None)
        return name

    @staticmethod
    def since(facts):
        return (
            f" since {facts.get('status_since') or facts.get('since')}"
            if facts.get("status_since") or facts.get("since")
            else ""
        ) + (f"; use {facts['replaced_by']}" if facts.get("replaced_by") else "")

    def check_children(self, component, path, parent, pass_name):
        settings = self.components[component]["settings"]
        lists, single = {}, {}
        for node in parent.kids:
            if node.ns != NS:
                self.report(node, "E106", f"<{node.tag}> is not in the unattend namespace")
                continue
            here = f"{path}/{node.tag}" if path else node.tag
            facts = settings.get(here)
            if facts is None:
                self.unknown_element(component, path, here, node)
                continue
            self.check_attributes(node, facts)
            if facts.get("attribute"):
                self.report(
                    node, "E302", f"<{node.tag}>: written as {facts['attribute']} of <{parent.tag}>, not as an element"
                )
                continue
            if facts.get("list_item"):
                lists.setdefault(here, []).append(node)
            elif here in single:
                self.report(node, "E305", f"<{node.tag}> already stands at line {single[here].line}")
            else:
                single[here] = node
            if facts.get("status"):
                self.report(node, "W311", f"{here} is {facts['status']}" + self.since(facts))
            elif facts.get("basis", "").startswith(("earlier", "later", "example")):
                self.report(node, "W314", f"{here} is not in this state of the reference ({facts['basis']})")
            if facts.get("applies_to", {}).get("server") is False:
                self.report(node, "W313", f"{here} is documented for client editions only")
            if pass_name and pass_name not in facts["passes"]:
                self.report(node, "E304", f"{here} is not valid in {pass_name} (valid: {', '.join(facts['passes'])})")
            if facts["type"] == "container":
                if node.text:
                    self.report(node, "E306", f"<{node.tag}> holds text; it takes elements only")
                self.check_children(component, here, node, pass_name)
                for child in facts.get("required_children", ()):
                    if node.one(child) is None and (node.tag, child) not in REPORTED_ELSEWHERE:
                        self.report(node, "E310", f"<{node.tag}> has no <{child}>")
            elif node.kids:
                self.report(node, "E306", f"<{node.tag}> holds elements; it takes a value")
            else:
                self.check_value(here, facts, node)
        for here, nodes in lists.items():
            self.check_list(settings[here], nodes)

    def unknown_element(self, component, path, here, node):
        settings = self.components[component]["settings"]
        gone = self.removed.get((component.lower(), here))
        if gone:
            self.report(node, "W311", f"{here} was {gone['status']}" + self.since(gone))
            return
        siblings = [p.rpartition("/")[2] for p in settings if p.rpartition("/")[0] == path]
        same = next((s for s in siblings if s.lower() == node.tag.lower()), None)
        elsewhere = sorted(p for p in settings if p.rpartition("/")[2] == node.tag)
        inside = path.rpartition("/")[2] or component
        if same:
            self.report(node, "E303", f"<{node.tag}>: the reference writes <{same}>")
        elif elsewhere:
            self.report(
                node,
                "E302",
                f"<{node.tag}> does not belong in {inside}; it belongs in "
                + " or ".join((p.rpartition("/")[0] or component) for p in elsewhere[:3]),
            )
        else:
            near = difflib.get_close_matches(node.tag, siblings, 1, 0.75)
            self.report(
                node,
                "E301",
                f"<{node.tag}> is not a setting of {inside}" + (f"; did you mean <{near[0]}>?" if near else ""),
            )

    def check_attributes(self, node, facts):
        for (ns, name), value in node.attrs.items():
            if ns == WCM and name == "action":
                if not facts.get("list_item"):
                    self.report(node, "W312", f"wcm:action on <{node.tag}>, which is not a list item")
                elif value != "add":
                    self.report(node, "W312", f'wcm:action="{value}" on <{node.tag}>; a new list item takes "add"')
            elif ns == WCM and name == "keyValue":
                if not facts.get("list_item"):
                    self.report(node, "W312", f"wcm:keyValue on <{node.tag}>, which is not a list item")
            elif name in ("action", "keyValue"):
                self.report(node, "E107", f"{name} on <{node.tag}> is in namespace '{ns}', expected '{WCM}'")
            elif ns not in (WCM, XSI, "http://www.w3.org/XML/1998/namespace"):
                self.report(node, "W108", f"attribute {name} on <{node.tag}>")

    def check_list(self, facts, nodes):
        key, seen = facts.get("list_key"), {}
        for node in nodes:
            if (WCM, "action") not in node.attrs and facts["list_basis"] != "plural":
                self.report(node, "E307", f'<{node.tag}> is a list item and has no wcm:action="add"')
            if key == "wcm:keyValue":
                value = node.attrs.get((WCM, "keyValue"))
                if not value:
                    self.report(node, "E308", f"<{node.tag}> has no wcm:keyValue")
            else:
                value = node.value(key, None) if key else None
                if key in ("Order", "DiskID") and value and value.isdigit():
                    value = str(int(value))
                elif key in ("Order", "DiskID") and node.one(key) is None:
                    self.report(node, "E310", f"<{node.tag}> has no <{key}>")
            if value:
                if value.lower() in seen:
                    self.report(
                        node,
                        "E309",
                        f"{key} {value} of <{node.tag}> is already used at line {seen[value.lower()].line}",
                    )
                seen.setdefault(value.lower(), node)

    # ---- single values

    def check_value(self, here, facts, node):
        value, kind, name = node.text, facts["type"], node.tag
        if self.placeholder(value):
            if not self.options.template:
                self.report(node, "W409", f"{name} is '{value}'")
            return
        if node.raw != value and value:
            self.report(node, "W408", f"white space before or after the value of {name}")
        if not value:
            if here == "UserData/ProductKey/Key":
                self.report(node, "E502", "empty <Key>; leave the element out instead")
            elif kind in ("boolean", "integer", "enum", "guid") and not facts.get("empty"):
                self.report(node, "E406", f"{name} must not be empty; leave the element out instead")
            elif facts.get("empty") is False:
                self.report(node, "W406", f"{name} should not be empty; leave the element out instead")
            return
        if kind == "boolean":
            if value not in ("true", "false"):
                code = "W402" if value.lower() in ("true", "false") else "E401"
                self.report(node, code, f"{name} is '{value}', expected true or false")
        elif kind == "enum":
            if value not in facts["values"]:
                code = "W402" if value.lower() in [v.lower() for v in facts["values"]] else "E404"
                self.report(node, code, f"{name} is '{value}', expected {' | '.join(facts['values'])}")
        elif kind == "integer":
            low, high = facts.get("min"), facts.get("max")
            if not re.fullmatch(r"-?\d+", value):
                self.report(node, "E403", f"{name} is '{value}', expected an integer")
            elif (low is not None and int(value) < low) or (high is not None and int(value) > high):
                self.report(
                    node,
                    "E403",
                    f"{name} is {value}, allowed: " + (f"{low} to {high}" if high is not None else f"{low} or more"),
                )
        elif kind == "guid" and not re.fullmatch(r"\{?[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}?", value):
            self.report(node, "E407", f"{name} is '{value}', expected a GUID")
        units = len(value.encode("utf-16-le")) // 2
        if units > facts.get("max_length", units):
            self.report(node, "E405", f"{name} has {units} characters, at most {facts['max_length']} are allowed")
        if units < facts.get("min_length", units):
            self.report(node, "E405", f"{name} has {units} characters, at least {facts['min_length']} are needed")
        if "pattern" in facts and not re.fullmatch(facts["pattern"], value):
            self.report(node, "E407", f"{name} is '{value}', which is not in the expected form")
        if "forbidden_chars" in facts:
            self.check_computer_name(node, facts)

    def check_computer_name(self, node, facts):
        value = node.text
        if value == facts.get("also"):
            return
        size = len(value.encode("utf-8"))
        if size > facts["max_bytes"]:
            self.report(node, "E501", f"{node.tag} has {size} bytes, at most {facts['max_bytes']} are allowed")
        if value.isdigit():
            self.report(node, "E501", f"{node.tag} must not consist of digits only")
        bad = sorted(set(value) & set(facts["forbidden_chars"]))
        if bad:
            self.report(node, "E501", f"{node.tag} contains {' '.join(map(repr, bad))}")
