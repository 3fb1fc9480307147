#!/usr/bin/env python3
"""Check Windows answer files (Autounattend.xml) without Windows.

    unattend_check.py [options] FILE...

Checks a file against the facts of Microsoft's unattend reference
(data/unattend-reference.json) and against rules that span several
settings: partition plan, product key, passwords, automatic logon, languages.
Prints `path:line: CODE message`; codes starting with E are errors, with W
warnings. Exit status: 0 no error, 1 at least one error, 2 wrong usage.

Python 3.11, standard library only.
"""

import argparse
import base64
import binascii
import codecs
import difflib
import json
import re
import sys
from pathlib import Path
from xml.parsers import expat

NS = "urn:schemas-microsoft-com:unattend"
WCM = "http://schemas.microsoft.com/WMIConfig/2002/State"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
MICROSOFT_KEY = "31bf3856ad364e35"  # the public key token of every component
ARCHES = ("amd64", "arm", "arm64", "ia64", "neutral", "wow64", "x86")
REFERENCE = Path(__file__).resolve().parent / "data" / "unattend-reference.json"

CODES = {
    # document
    "E101": "not well-formed XML",
    "E102": "declared encoding, byte order mark and bytes disagree",
    "E103": "DOCTYPE or entity declaration",
    "W104": "no XML declaration, or an encoding other than UTF-8 and UTF-16",
    "E105": "root element is not <unattend> in the unattend namespace",
    "E106": "element that does not belong at this level, or in another namespace",
    "E107": "action/keyValue attribute outside the wcm namespace",
    "W108": "unknown attribute",
    "E109": "text where only elements may stand",
    "E110": "settings: pass missing or unknown",
    "W111": "settings: same pass given twice",
    # component
    "E201": "component attribute missing or wrong",
    "E202": "component for another processor architecture only, so ignored",
    "E203": "component not in the reference",
    "W204": "component deprecated or removed",
    "W205": "component name differs in upper/lower case from the reference",
    "E206": "component given twice in one pass",
    "E207": "component has no setting valid in this pass",
    "W208": "component attribute differs in upper/lower case",
    # structure
    "E301": "element not in the reference",
    "E302": "element known, but not at this place",
    "E303": "element name differs in upper/lower case from the reference",
    "E304": "setting not valid in this pass",
    "E305": "element given twice",
    "E306": "value where elements belong, or elements where a value belongs",
    "E307": 'list item without wcm:action="add"',
    "E308": "list item without wcm:keyValue",
    "E309": "two list items with the same key",
    "E310": "required child element missing",
    "W311": "setting deprecated, removed or not supported",
    "W312": "wcm attribute that has no place here",
    "W313": "setting documented as not applying to Windows Server",
    "W314": "setting known from elsewhere, not in this state of the reference",
    # values
    "E401": "not a boolean",
    "W402": "boolean or listed value in unusual spelling",
    "E403": "not an integer, or out of range",
    "E404": "not one of the documented values",
    "E405": "too long or too short",
    "E406": "empty value where a number, boolean or listed value is needed",
    "W406": "empty string that the reference does not allow",
    "E407": "malformed value",
    "W408": "white space around the value",
    "W409": "looks like a template placeholder that was not filled in",
    # product key and image
    "E501": "computer name",
    "E502": "empty product key",
    "E503": "product key on evaluation media",
    "E504": "product key and image are of different edition or version",
    "E505": "image is not of the version given with --server",
    "W506": "image selection missing or doubtful",
    "E507": "AcceptEula is not true",
    # partition plan
    "E510": "partition type does not fit the firmware",
    "E511": "Active on a GPT disk, or more than one active partition",
    "W511": "no partition is made active",
    "E512": "InstallTo names no partition Windows can be installed on",
    "E513": "Size and Extend",
    "E514": "EFI system partition too small or not FAT32",
    "E515": "ModifyPartition refers to a partition that is not created",
    "E516": "drive letter given twice",
    "W517": "partition plan incomplete or doubtful",
    # accounts
    "E520": "encoded password does not decode to value + element name",
    "E521": "password differs from --password",
    "E522": "AutoLogon without account or password",
    "W522": "AutoLogon without LogonCount",
    "E523": "AutoLogon account or password does not match the accounts created",
    "W523": "AutoLogon account is not created by this file",
    "W524": "no administrator password in oobeSystem",
    "W525": "FirstLogonCommands without AutoLogon",
    # language
    "E530": "language setting missing in windowsPE",
    "W531": "language setting missing in oobeSystem",
    "E532": "malformed language or keyboard value",
}


# required children that have a code of their own (W522, E507)
REPORTED_ELSEWHERE = {("AutoLogon", "LogonCount"), ("UserData", "AcceptEula")}
PLACEHOLDER = re.compile(r"\$\{[^}]*\}|\{\{.*\}\}|\{%.*%\}|@[A-Z_]+@|<%.*%>")


# ---------------------------------------------------------------- parsing


class Node:
    """An element with its line number."""

    def __init__(self, tag, ns, attrs, line, parent):
        self.tag, self.ns, self.attrs, self.line, self.parent = tag, ns, attrs, line, parent
        self.kids, self.raw = [], ""

    @property
    def text(self):
        return self.raw.strip()

    def all(self, path):
        """All descendants at a path of element names."""
        nodes = [self]
        for name in path.split("/"):
            nodes = [k for n in nodes for k in n.kids if k.tag == name]
        return nodes

    def one(self, path):
        found = self.all(path)
        return found[0] if found else None

    def value(self, path, default=""):
        node = self.one(path)
        return node.text if node is not None else default


class Finding(Exception):
    """A defect that ends the reading of a file."""

    def __init__(self, line, code, message):
        self.line, self.code, self.message = line, code, message


def check_encoding(data, report):
    """Compare byte order mark, XML declaration and bytes."""
    boms = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
    bom = next((name for mark, name in boms if data.startswith(mark)), None)
    head = data[:400].decode(bom or "latin-1", "replace").lstrip("\ufeff")
    declaration = re.match(r"<\?xml\s[^>]*\?>", head)
    named = re.search(r"encoding\s*=\s*[\"']([^\"']+)", declaration.group(0)) if declaration else None
    encoding = named.group(1).lower() if named else None
    if not declaration:
        report(1, "W104", "no XML declaration")
    if bom and bom.startswith("utf-16"):
        if encoding and not encoding.startswith("utf-16"):
            raise Finding(1, "E102", f"byte order mark says UTF-16, declaration says {encoding}")
    elif encoding and encoding.startswith("utf-16"):
        raise Finding(1, "E102", "declaration says UTF-16, the bytes are not")
    elif encoding in (None, "utf-8", "us-ascii", "ascii"):
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise Finding(line, "E102", f"byte 0x{data[error.start]:02X} is not valid UTF-8") from None
    elif bom:
        raise Finding(1, "E102", f"byte order mark says UTF-8, declaration says {encoding}")
    else:
        report(1, "W104", f"encoding {encoding}; UTF-8 is what Setup is known to read")


def parse(data, report):
    check_encoding(data, report)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.ordered_attributes = True
    parser.buffer_text = True
    state = {"root": None, "at": None}

    def split(name):
        ns, _, local = name.rpartition(" ")
        return ns, local

    def start(name, attrs):
        ns, tag = split(name)
        pairs = {split(attrs[i]): attrs[i + 1] for i in range(0, len(attrs), 2)}
        node = Node(tag, ns, pairs, parser.CurrentLineNumber, state["at"])
        if state["at"] is None:
            state["root"] = node
        else:
            state["at"].kids.append(node)
        state["at"] = node

    def end(_name):
        state["at"] = state["at"].parent

    def text(chars):
        if state["at"] is not None:
            state["at"].raw += chars

    def doctype(*_args):
        raise Finding(parser.CurrentLineNumber, "E103", "DOCTYPE is not allowed in an answer file")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text, doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise Finding(error.lineno, "E101", expat.ErrorString(error.code)) from None
    except (LookupError, ValueError) as error:  # encodings Python does not know, or cannot hand to expat
        raise Finding(1, "E102", str(error)) from None
    return state["root"]


# ---------------------------------------------------------------- the checker


class Checker:
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

    def run(self, data):
        try:
            root = parse(data, self.report)
            self.check_document(root)
            self.check_meaning()
        except Finding as f:
            self.report(f.line, f.code, f.message)
        return sorted(self.findings)

    # ---- document and components

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

    def placeholder(self, text):
        return bool(PLACEHOLDER.fullmatch(text) or (self.options.template and re.fullmatch(r"%[A-Za-z_]+%", text)))

    @staticmethod
    def since(facts):
        return (
            f" since {facts.get('status_since') or facts.get('since')}"
            if facts.get("status_since") or facts.get("since")
            else ""
        ) + (f"; use {facts['replaced_by']}" if facts.get("replaced_by") else "")

    # ---- structure

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

    # ---- rules across settings

    def get(self, pass_name, component):
        return self.found.get((pass_name, component), [])

    def each(self, component, path, passes=None):
        """Nodes at a path of a component, in all passes or those named."""
        return [n for p in (passes or self.passes) for c in self.get(p, component) for n in c.all(path)]

    def check_meaning(self):
        setup = self.get("windowsPE", "Microsoft-Windows-Setup")
        if setup:
            self.check_eula(setup)
            self.check_image_and_key(setup)
            self.check_disks(setup)
        self.check_passwords()
        self.check_accounts()
        self.check_languages()
        self.check_commands()

    def check_eula(self, setup):
        nodes = [n for c in setup for n in c.all("UserData/AcceptEula")]
        installs = any(c.all("ImageInstall") or c.all("UserData") for c in setup)
        if installs and not nodes:
            self.report(setup[0], "E507", "UserData/AcceptEula is required for an unattended installation")
        for node in nodes:
            if node.text.lower() == "false":
                self.report(node, "E507", "AcceptEula is false: Setup stops at the licence terms")

    def check_image_and_key(self, setup):
        keys = [n for c in setup for n in c.all("UserData/ProductKey/Key")]
        keys += self.each("Microsoft-Windows-Shell-Setup", "ProductKey")
        given = [k for k in keys if k.text]
        if self.options.eval:
            for key in keys:
                self.report(key, "E503", f"<{key.tag}> stands in the file, but the media are evaluation media")
        images = [n for c in setup for n in c.all("ImageInstall/OSImage/InstallFrom/MetaData")]
        name, name_node = "", None
        for item in images:
            kind, value = item.value("Key").upper(), item.one("Value")
            if value is None or not value.text:
                self.report(item, "E310", "<MetaData> has no <Value>")
            elif kind == "/IMAGE/INDEX" and not re.fullmatch(r"[1-9]\d*", value.text):
                self.report(value, "E403", f"image index is '{value.text}', expected 1 or more")
            elif kind in ("/IMAGE/NAME", "/IMAGE/DESCRIPTION"):
                name, name_node = value.text, value
        if any(c.all("ImageInstall/OSImage") for c in setup) and not images and not given:
            self.report(
                setup[0],
                "W506",
                "neither an image (InstallFrom/MetaData) nor a product key is given: Setup asks which image to install",
            )
        upper = name.upper()
        year = re.search(r"SERVER (20\d\d(?: R2)?)", upper)
        edition = next((e for e in ("STANDARD", "DATACENTER", "SOLUTION", "TURBINE") if e in upper), None)
        if year and self.options.server and year.group(1) != self.options.server:
            self.report(name_node, "E505", f"image '{name}' is not Windows Server {self.options.server}")
        if year and year.group(1) in ("2019", "2022", "2025") and " SERVER" not in upper.replace("WINDOWS SERVER ", ""):
            self.report(
                name_node,
                "W506",
                f"'{name}' looks like a display name; the images on Server media are "
                f"named like 'Windows Server {year.group(1)} SERVERSTANDARD'",
            )
        for key in given:
            known = self.gvlk.get(key.text.upper())
            if not known:
                continue
            label = f"{known['key']} is the client setup key of Windows Server {known['server']} {known['edition']}"
            if (year and year.group(1) != known["server"]) or (edition and edition != known["image_name_part"]):
                self.report(key, "E504", f"{label}, the image is '{name}'")
            elif self.options.server and self.options.server != known["server"]:
                self.report(key, "E504", f"{label}, --server is {self.options.server}")

    # ---- partition plan

    def check_disks(self, setup):
        disks = {}
        for component in setup:
            for disk in component.all("DiskConfiguration/Disk"):
                plan = self.check_disk(disk)
                disks[disk.value("DiskID")] = plan
        letters = {}
        for plan in disks.values():
            for part in plan["parts"].values():
                letter = part["letter"].upper()
                if letter and letter in letters:
                    self.report(
                        part["modify"], "E516", f"drive letter {letter} is already used at line {letters[letter]}"
                    )
                elif letter:
                    letters[letter] = part["modify"].line
        for component in setup:
            for image in component.all("ImageInstall/OSImage"):
                self.check_target(image, disks)
                target = image.one("InstallTo")
                if target is not None and target.value("DiskID") in disks:
                    self.check_boot(target.value("DiskID"), disks)

    @staticmethod
    def number(text):
        return int(text) if re.fullmatch(r"\d+", text) else None

    def check_disk(self, disk):
        """Check one disk; return its plan: parts by number, whether that list is complete."""
        created = sorted(disk.all("CreatePartitions/CreatePartition"), key=lambda n: self.number(n.value("Order")) or 0)
        wiped = disk.value("WillWipeDisk").lower() == "true"
        if created and not wiped:
            self.report(
                disk,
                "W517",
                "partitions are created, but WillWipeDisk is not true: the partition numbers "
                "depend on what is on the disk",
            )
        parts, number = {}, 0
        for node in created:
            kind = node.value("Type")
            if kind.lower() != "extended":  # extended partitions are not counted
                number += 1
            part = {
                "node": node,
                "type": kind.lower(),
                "size": self.number(node.value("Size")),
                "modify": node,
                "letter": "",
                "format": "",
                "active": False,
            }
            parts[number if kind.lower() != "extended" else f"extended{len(parts)}"] = part
            extend, has_size = node.value("Extend").lower() == "true", node.one("Size") is not None
            if not kind:
                self.report(node, "E310", "<CreatePartition> has no <Type>")
            if extend and has_size:
                self.report(node, "E513", "Size and Extend are both given; use one")
            elif not extend and not has_size:
                self.report(node, "E513", "neither Size nor Extend=true is given")
            if extend and node is not created[-1] and kind.lower() != "extended":
                self.report(node, "E513", "the partition with Extend=true must be the last one")
        plan = {"disk": disk, "parts": parts, "complete": wiped and bool(created)}
        for node in disk.all("ModifyPartitions/ModifyPartition"):
            wanted = self.number(node.value("PartitionID"))
            if node.one("PartitionID") is None:
                self.report(node, "E310", "<ModifyPartition> has no <PartitionID>")
            if wanted is None:
                continue
            part = parts.get(wanted)
            if part is None:
                if plan["complete"]:
                    self.report(node, "E515", f"partition {wanted} is modified, but {number} are created")
                continue
            part.update(
                modify=node,
                letter=node.value("Letter"),
                format=node.value("Format"),
                active=node.value("Active").lower() == "true",
            )
            if part["type"] == "msr" and part["format"]:
                self.report(node, "W517", "Format on an MSR partition, which has no file system")
        self.check_firmware(plan)
        return plan

    def check_firmware(self, plan):
        firmware, kinds = self.options.firmware, [p["type"] for p in plan["parts"].values()]
        gpt = "efi" in kinds or "msr" in kinds
        mbr = "extended" in kinds or "logical" in kinds
        for part in plan["parts"].values():
            kind, label = part["type"], part["node"].value("Type")
            if kind in ("efi", "msr") and (firmware == "bios" or mbr):
                self.report(part["node"], "E510", f"{label} partitions cannot be made on an MBR disk (BIOS)")
            if kind in ("extended", "logical") and firmware == "uefi":
                self.report(part["node"], "E510", f"{label} partitions exist on MBR disks (BIOS) only")
            if part["active"] and (firmware == "uefi" or gpt):
                self.report(part["modify"], "E511", "Active is for MBR disks (BIOS) only")
            if kind == "efi":
                if part["size"] is not None and part["size"] < 100:
                    self.report(
                        part["node"],
                        "E514",
                        f"the EFI system partition has {part['size']} MB, at least 100 MB are needed",
                    )
                if part["format"] and part["format"].upper() != "FAT32":
                    self.report(
                        part["modify"], "E514", f"the EFI system partition is {part['format']}, it must be FAT32"
                    )
        if firmware == "bios" and len([k for k in kinds if k in ("primary", "extended")]) > 4:
            self.report(plan["disk"], "E510", "an MBR disk takes four primary partitions")

    def check_target(self, image, disks):
        target, free = image.one("InstallTo"), image.value("InstallToAvailablePartition").lower() == "true"
        if target is None:
            if not free:
                self.report(image, "W517", "neither InstallTo nor InstallToAvailablePartition: Setup asks where")
            return
        if free:
            self.report(target, "E512", "InstallTo and InstallToAvailablePartition=true exclude each other")
        for child in ("DiskID", "PartitionID"):
            if target.one(child) is None:
                self.report(target, "E310", f"<InstallTo> has no <{child}>")
        plan = disks.get(target.value("DiskID"))
        wanted = self.number(target.value("PartitionID"))
        if plan is None:
            if disks and target.one("DiskID") is not None:
                self.report(target, "E512", f"disk {target.value('DiskID')} is not in DiskConfiguration")
            return
        if wanted is None or not plan["complete"]:
            return
        part = plan["parts"].get(wanted)
        if part is None:
            self.report(target, "E512", f"partition {wanted} does not exist on disk {target.value('DiskID')}")
        elif part["type"] not in ("primary", "logical", ""):
            self.report(
                target,
                "E512",
                f"partition {wanted} is of type {part['node'].value('Type')}; Windows needs a primary or logical one",
            )
        elif part["format"].upper() == "FAT32":
            self.report(target, "E512", f"partition {wanted} is FAT32; Windows needs NTFS")

    def check_boot(self, disk_id, disks):
        """The disk Windows goes to must hold what the firmware boots from."""
        plan, firmware = disks[disk_id], self.options.firmware
        kinds = [p["type"] for p in plan["parts"].values()]
        if not plan["complete"]:
            return
        if firmware == "uefi":
            if not any(p["type"] == "efi" for d in disks.values() for p in d["parts"].values()):
                self.report(plan["disk"], "E510", "no EFI system partition is created")
            if "msr" not in kinds:
                self.report(plan["disk"], "W517", "no MSR partition is created")
            elif "primary" in kinds[: kinds.index("msr")] and "efi" in kinds[kinds.index("msr") :]:
                self.report(plan["disk"], "W517", "the MSR partition stands between a primary partition and the ESP")
        if firmware == "bios":
            active = [p for p in plan["parts"].values() if p["active"]]
            if len(active) > 1:
                self.report(active[1]["modify"], "E511", "more than one active partition")
            elif not active:
                self.report(plan["disk"], "W511", "no partition is made active; Setup has to choose one")

    # ---- passwords and accounts

    def decode(self, node):
        """(known, password) of a Password-like element; reports what is wrong with it."""
        value = node.one("Value")
        if value is None:
            return False, ""
        secret = value.raw if value.raw.strip() else ""
        if self.options.template and self.placeholder(value.text):
            return False, ""
        plain = node.value("PlainText", "true").lower() != "false"
        try:
            decoded = base64.b64decode(secret.strip(), validate=True).decode("utf-16-le")
        except (binascii.Error, ValueError):
            decoded = None
        if plain:
            if decoded and decoded.endswith(node.tag):
                self.report(value, "E520", f"PlainText is true, but the value is an encoded {node.tag}")
            return True, secret
        if decoded is None:
            self.report(value, "E520", "PlainText is false, but the value is not base64 of UTF-16LE text")
        elif not decoded.endswith(node.tag):
            self.report(value, "E520", f"PlainText is false; the decoded value does not end with '{node.tag}'")
        else:
            return True, decoded[: -len(node.tag)]
        return False, ""

    def check_passwords(self):
        self.secrets = {}
        shell = "Microsoft-Windows-Shell-Setup"
        for path in (
            "AutoLogon/Password",
            "UserAccounts/AdministratorPassword",
            "UserAccounts/LocalAccounts/LocalAccount/Password",
            "OfflineUserAccounts/OfflineAdministratorPassword",
            "OfflineUserAccounts/OfflineLocalAccounts/LocalAccount/Password",
        ):
            for node in self.each(shell, path):
                known, password = self.secrets[id(node)] = self.decode(node)
                if known and self.options.password is not None and password != self.options.password:
                    self.report(node.one("Value"), "E521", f"{node.tag} is not the password given with --password")

    def check_accounts(self):
        shell = "Microsoft-Windows-Shell-Setup"
        accounts = {}  # lower-case name -> password node or None
        for node in self.each(shell, "UserAccounts/LocalAccounts/LocalAccount"):
            accounts[node.value("Name").lower()] = node.one("Password")
        admin = self.each(shell, "UserAccounts/AdministratorPassword")
        if admin:
            accounts["administrator"] = admin[0]
        elif self.get("oobeSystem", shell) and self.options.server:
            self.report(
                self.get("oobeSystem", shell)[0],
                "W524",
                "no UserAccounts/AdministratorPassword: Windows Server asks for it at first start",
            )
        for logon in self.each(shell, "AutoLogon"):
            enabled = logon.value("Enabled").lower()
            if enabled != "true":
                if logon.one("Enabled") is None:
                    self.report(logon, "E522", "AutoLogon has no <Enabled>")
                continue
            if logon.one("LogonCount") is None:
                self.report(logon, "W522", "AutoLogon has no <LogonCount>: the reference requires it")
            for child in ("Username", "Password"):
                if logon.one(child) is None or (child == "Username" and not logon.value(child)):
                    self.report(logon, "E522", f"AutoLogon has no <{child}>")
            user, domain = logon.one("Username"), logon.value("Domain")
            if user is None or not user.text or domain not in ("", ".") or not accounts:
                continue
            if self.placeholder(user.text):
                continue
            if user.text.lower() not in accounts:
                installs = bool(self.get("windowsPE", "Microsoft-Windows-Setup"))
                self.report(
                    user,
                    "E523" if installs else "W523",
                    f"AutoLogon uses '{user.text}', the file creates {', '.join(sorted(accounts))}",
                )
                continue
            mine, theirs = logon.one("Password"), accounts[user.text.lower()]
            if mine is None:
                continue
            known, password = self.secrets[id(mine)]
            if theirs is None:
                other, wanted = True, ""
            else:
                other, wanted = self.secrets[id(theirs)]
            if known and other and password != wanted:
                self.report(mine, "E523", f"AutoLogon and the account '{user.text}' have different passwords")

    def check_commands(self):
        shell = "Microsoft-Windows-Shell-Setup"
        commands = (
            ("Microsoft-Windows-Setup", "RunSynchronous/RunSynchronousCommand", "Path"),
            ("Microsoft-Windows-Setup", "RunAsynchronous/RunAsynchronousCommand", "Path"),
            ("Microsoft-Windows-Deployment", "RunSynchronous/RunSynchronousCommand", "Path"),
            ("Microsoft-Windows-Deployment", "RunAsynchronous/RunAsynchronousCommand", "Path"),
            (shell, "FirstLogonCommands/SynchronousCommand", "CommandLine"),
            (shell, "LogonCommands/AsynchronousCommand", "CommandLine"),
        )
        for component, path, child in commands:
            for node in self.each(component, path):
                if not node.value(child):
                    self.report(node, "E310", f"<{node.tag}> has no <{child}>")
        first = self.each(shell, "FirstLogonCommands/SynchronousCommand")
        if first and not any(n.value("Enabled").lower() == "true" for n in self.each(shell, "AutoLogon")):
            self.report(first[0].parent, "W525", "FirstLogonCommands wait for a logon, and AutoLogon is not enabled")

    # ---- languages

    def check_languages(self):
        names = ("InputLocale", "SystemLocale", "UILanguage", "UserLocale")
        tag = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
        keyboard = re.compile(r"[0-9A-Fa-f]{4}:((0[xX])?[0-9A-Fa-f]{8}|(\{[0-9A-Fa-f-]{36}\}){2})")
        winpe, core = "Microsoft-Windows-International-Core-WinPE", "Microsoft-Windows-International-Core"
        pe, setup = self.get("windowsPE", winpe), self.get("windowsPE", "Microsoft-Windows-Setup")
        shell = self.get("oobeSystem", "Microsoft-Windows-Shell-Setup")
        if setup and any(c.all("ImageInstall") or c.all("UserData") for c in setup):
            for name in ("SetupUILanguage/UILanguage", *names):
                if not any(c.all(name) for c in pe):
                    self.report((pe or setup)[0], "E530", f"{winpe}/{name} is missing: Setup asks for it")
        if shell and not pe:
            for name in names:
                if not any(c.all(name) for p in ("oobeSystem", "specialize") for c in self.get(p, core)):
                    self.report(shell[0], "W531", f"{core}/{name} is missing: the first start may ask for it")
        for component in (winpe, core):
            for name in (*names, "UILanguageFallback", "SetupUILanguage/UILanguage"):
                for node in self.each(component, name):
                    parts = [p.strip() for p in node.text.split(";")] if name == "InputLocale" else [node.text]
                    for part in filter(None, parts):
                        if self.placeholder(part) or tag.fullmatch(part):
                            continue
                        if not (name == "InputLocale" and keyboard.fullmatch(part)):
                            self.report(node, "E532", f"{name.rpartition('/')[2]} is '{part}'")


# ---------------------------------------------------------------- command line


def arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], epilog="exit status: 0 no error, 1 at least one error, 2 wrong usage"
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="answer file; - reads standard input")
    parser.add_argument("--firmware", choices=("bios", "uefi"), help="check the partition plan for this firmware")
    parser.add_argument("--eval", action="store_true", help="the media are evaluation media: no product key allowed")
    parser.add_argument("--server", choices=("2019", "2022", "2025"), help="Windows Server version of the media")
    parser.add_argument("--password", metavar="PW", help="every account password in the file must be PW")
    parser.add_argument("--arch", default="amd64", choices=ARCHES, help="architecture installed (default amd64)")
    parser.add_argument("--template", action="store_true", help="accept values that are template placeholders")
    parser.add_argument("--ignore", metavar="CODE,...", default="", help="leave these codes out")
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_argument("--strict", action="store_true", help="exit status 1 on warnings, too")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--codes", action="store_true", help="print the list of codes and exit")
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="reference data (default: %(default)s)")
    options = parser.parse_args(argv)
    options.ignore = {c for c in options.ignore.replace(" ", "").upper().split(",") if c}
    unknown = options.ignore - set(CODES)
    if unknown:
        parser.error(f"unknown code: {', '.join(sorted(unknown))}")
    if not options.files and not options.codes:
        parser.error("no file given")
    return options


def main(argv=None):
    options = arguments(argv)
    if options.codes:
        for code, meaning in sorted(CODES.items(), key=lambda c: (c[0][1:], c[0])):
            print(code, meaning)
        return 0
    try:
        reference = json.loads(options.reference.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"unattend_check: {options.reference}: {error}", file=sys.stderr)
        return 2
    results, broken = [], False
    for name in options.files:
        try:
            data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        except OSError as error:
            print(f"unattend_check: {name}: {error.strerror}", file=sys.stderr)
            broken = True
            continue
        for line, code, message in Checker(name, options, reference).run(data):
            severity = "error" if code.startswith("E") else "warn"
            if code in options.ignore or (options.quiet and severity == "warn"):
                continue
            results.append({"path": name, "line": line, "code": code, "severity": severity, "message": message})
    errors = sum(r["severity"] == "error" for r in results)
    if options.json:
        print(
            json.dumps(
                {"files": len(options.files), "errors": errors, "warnings": len(results) - errors, "findings": results},
                indent=1,
            )
        )
    else:
        for r in results:
            print(f"{r['path']}:{r['line']}: {r['code']} {r['message']}")
    return 2 if broken else 1 if errors or (options.strict and results) else 0


if __name__ == "__main__":
    sys.exit(main())
