"""Languages and keyboards."""

import re

from answerfile.checks import Checks


class Languages(Checks):
    """Checks of the international settings."""

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
