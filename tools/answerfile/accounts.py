"""Passwords, accounts, automatic logon, and the commands that wait for a logon."""

import base64
import binascii

from answerfile.checks import Checks


class Accounts(Checks):
    """Checks of accounts and commands."""

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
