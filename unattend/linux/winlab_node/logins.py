"""Who may log in by ssh, and the key by which this node is recognized."""

from __future__ import annotations

from winlab_node.node import Node, NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings

HOST_KEY = "etc/ssh/ssh_host_ed25519_key"  # cloud-init has removed all others


def logins(node: Node, settings: Settings) -> Settings:
    """Let one more key log in, and replace the host key. Open connections stay.

    The new key can log in before the host key is replaced. After that, a winlab with only the new ones can log in.
    """
    user, key, former = settings["user"], settings["ssh_key"], settings.get("former")
    home, owner = _account(node, user)
    place = f"{home}/.ssh/authorized_keys"
    path = node.path(place)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in lines if not _has(line, key) and not (former and _has(line, former))]
    if not path.parent.is_dir():
        raise NodeError(f"'{path.parent}' is no folder: this node was not made by winlab.")
    changed = node.write(place, "\n".join([*kept, key]) + "\n", 0o600, owner)
    changed = node.write(HOST_KEY, settings["host_key"], 0o600) or changed
    changed = node.write(f"{HOST_KEY}.pub", settings["host_key_public"] + "\n") or changed
    node.call("systemctl", "try-reload-or-restart", "ssh")  # even if nothing changed: it may have failed before
    return {"changed": changed}


def _account(node: Node, user: str) -> tuple[str, tuple[int, int]]:
    """A user's home, and the numbers of user and group."""
    for line in node.path("etc/passwd").read_text(encoding="utf-8").splitlines():
        name, _, number, group, _, home, *_ = line.split(":")
        if name == user:
            return home, (int(number), int(group))
    raise NodeError(f"This node has no user '{user}'.")


def _has(line: str, key: str) -> bool:
    """Whether a line of authorized_keys is about this key: comments don't matter, and options may come first."""
    return key.split()[1] in line.split()
