"""An answer file as a tree of elements with their lines."""

import codecs
import re
from xml.parsers import expat


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
