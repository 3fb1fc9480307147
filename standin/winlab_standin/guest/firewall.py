"""Windows' firewall, as far as it decides who reaches WinRM and ssh. It is in the registry, as in Windows.

A network is Public until something makes it Private, and in either profile only what a rule allows comes in. A profile
can be set to ignore all rules ("block all incoming connections", ``DoNotAllowExceptions``).
Sources: Microsoft's "Windows Firewall rules" and "netsh advfirewall"; the keys are those of [MS-GPFAS], 2.2.
"""

from __future__ import annotations

from winlab_standin.guest.registry import Registry

PUBLIC, PRIVATE = 0, 1  # Category of a network: [MS-NLM] and the policy FirstNetwork
_POLICY = r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Services\SharedAccess\Parameters\FirewallPolicy"
_RULES = rf"{_POLICY}\FirewallRules"
_NETWORK = (
    r"HKEY_LOCAL_MACHINE\SOFTWARE\Microsoft\Windows NT\CurrentVersion\NetworkList\Profiles"
    r"\{5D1F4E0C-4B0E-4A55-9A5C-7A6E5C1A57D1}"
)
_FIRST = r"HKEY_LOCAL_MACHINE\SOFTWARE\Policies\Microsoft\Windows NT\CurrentVersion\NetworkList\Signatures\FirstNetwork"
NUMBERS = {"TCP": 6, "UDP": 17}  # of protocols (IANA)
PROFILES = {"domain": "DomainProfile", "private": "StandardProfile", "public": "PublicProfile"}


def category(registry: Registry) -> int:
    """Whether the network is Public or Private."""
    kept = registry.get(_NETWORK, "Category") or registry.get(_FIRST, "Category")
    return PRIVATE if kept is not None and int(kept, 0) == PRIVATE else PUBLIC


def set_category(registry: Registry, value: int) -> None:
    """What ``Set-NetConnectionProfile -NetworkCategory`` does; and what happens when Windows meets a new network."""
    registry.add(_NETWORK, "Category", "REG_DWORD", str(value))


def add_rule(registry: Registry, name: str, ports: str, shown: str, protocol: str = "TCP") -> None:
    """What ``New-NetFirewallRule -Direction Inbound -Action Allow -Profile Any`` does. *ports*: one, or a range."""
    text = f"v2.31|Action=Allow|Active=TRUE|Dir=In|Protocol={NUMBERS[protocol]}|LPort={ports}|Name={shown}|"
    registry.add(_RULES, name, "REG_SZ", text)


def set_profile(registry: Registry, profile: str, name: str, value: int) -> None:
    """Set a value of a profile (a key of PROFILES)."""
    registry.add(f"{_POLICY}\\{PROFILES[profile]}", name, "REG_DWORD", str(value))


def closed(registry: Registry) -> list[str]:
    """The profiles, as Windows names them, that are on and ignore inbound rules."""
    return [name.capitalize() for name in ("private", "public") if _on(registry, name) and _blocks_all(registry, name)]


def allows(registry: Registry, port: int) -> bool:
    """Whether a connection from another machine to a TCP port is allowed."""
    profile = "private" if category(registry) == PRIVATE else "public"
    if not _on(registry, profile):
        return True
    if _blocks_all(registry, profile):
        return False
    if _value(registry, profile, "DefaultInboundAction", 1) == 0:
        return True
    _, rules = registry.find(_RULES) or ("", {})
    return any(_matches(text, port, profile) for _, text in rules.values())


def _matches(rule: str, port: int, profile: str) -> bool:
    parts = rule.split("|")
    profiles = [part.partition("=")[2].lower() for part in parts if part.startswith("Profile=")]
    return {"Action=Allow", "Active=TRUE", "Dir=In", "Protocol=6", f"LPort={port}"} <= set(parts) and (
        not profiles or profile in profiles
    )


def _on(registry: Registry, profile: str) -> bool:
    return _value(registry, profile, "EnableFirewall", 1) != 0


def _blocks_all(registry: Registry, profile: str) -> bool:
    return _value(registry, profile, "DoNotAllowExceptions", 0) != 0


def _value(registry: Registry, profile: str, name: str, default: int) -> int:
    kept = registry.get(f"{_POLICY}\\{PROFILES[profile]}", name)
    return default if kept is None else int(kept, 0)
