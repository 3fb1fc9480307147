"""The licence, the image to install, and the product key."""

import re

from answerfile.checks import Checks


class Image(Checks):
    """Checks of what is installed."""

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
