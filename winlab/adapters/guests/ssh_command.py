"""The command line of the host's ssh client for a session on a node."""

from __future__ import annotations

from pathlib import Path

from winlab.design.plan.tags import Tag
from winlab.errors import UsageError
from winlab.lab_folder import LabFolder

KEEPALIVE = 15  # seconds
# seconds after which a connection is lost if the guest's kernel acknowledges nothing: it is gone or paused
SILENCE = 60


def arguments(tag: Tag, folder: LabFolder, *more: str) -> list[str | Path]:
    """The command line of the host's ssh client for a user's session on this node.

    :param more: more options.
    :raises UsageError: ssh can't be given the path of the lab's folder.
    """
    return [
        "ssh",
        "-F",
        "none",  # no configuration of the user's or the host's: it may forward an agent, or a port, to every host
        "-o",
        "ForwardAgent=no",
        "-o",
        "ForwardX11=no",
        "-o",
        f"IdentityFile={_quoted(folder.ssh_key)}",  # not -i, which takes no path with a percent sign
        "-o",
        "IdentitiesOnly=yes",
        "-o",
        f"UserKnownHostsFile={_quoted(folder.known_hosts)}",
        "-o",
        f"HostKeyAlias={tag.full_name}",  # whose key it must have, regardless of the address
        "-o",
        "StrictHostKeyChecking=yes",
        "-o",
        "UpdateHostKeys=no",
        "-o",
        f"ConnectTimeout={KEEPALIVE}",
        "-o",
        f"ServerAliveInterval={KEEPALIVE}",  # a node that no longer answers ends the session
        "-o",
        f"ServerAliveCountMax={SILENCE // KEEPALIVE}",
        *more,
        f"{tag.user}@{tag.floating}",
    ]


def _quoted(path: Path) -> str:
    """A path in an option of ssh, which splits it at blanks and replaces tokens in it (man ssh_config, TOKENS).

    :raises UsageError: ssh has no way to write it.
    """
    text = str(path.absolute())
    if "${" in text or not text.isprintable():
        raise UsageError(
            f"ssh can't use the path '{text}'.",
            why="It replaces '${NAME}' by a variable, and has no way to write control characters.",
            cure="Move the labs' folder, and name it in WINLAB_STATE.",
        )
    for special in ("\\", '"'):
        text = text.replace(special, "\\" + special)
    return '"' + text.replace("%", "%%") + '"'
