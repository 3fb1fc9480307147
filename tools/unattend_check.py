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
import json
import sys
from pathlib import Path

from answerfile.accounts import Accounts
from answerfile.codes import CODES
from answerfile.disks import Disks
from answerfile.document import Finding, parse
from answerfile.image import Image
from answerfile.languages import Languages
from answerfile.structure import ARCHES, Structure

REFERENCE = Path(__file__).resolve().parent / "data" / "unattend-reference.json"


class Checker(Structure, Image, Disks, Accounts, Languages):
    def run(self, data):
        try:
            root = parse(data, self.report)
            self.check_document(root)
            self.check_meaning()
        except Finding as f:
            self.report(f.line, f.code, f.message)
        return sorted(self.findings)

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
