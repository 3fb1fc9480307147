"""A lab for other programs: port-forward, ssh-config, hosts, env, inventory, credentials."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from winlab import settings
from winlab.cli.app import NoResult
from winlab.cli.common import NodeName, say
from winlab.cli.session import LabName, current
from winlab.cli.words import LabWord

LOOK = 0.2  # seconds between two checks whether ssh still runs


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command("port-forward")(port_forward)
    app.command("ssh-config", cls=NoResult)(ssh_config)
    app.command(cls=NoResult)(hosts)
    app.command()(env)
    app.command(cls=NoResult)(inventory)
    app.command()(credentials)


def port_forward(
    node: NodeName,
    ports: Annotated[list[str], typer.Argument(metavar="[LOCAL:]REMOTE...", help="0 as LOCAL: any free port.")],
    lab: LabName = settings.DEFAULT_LAB,
) -> None:
    """Forward ports of this host's loopback to a node's, by ssh, until Ctrl-C.

    Examples:
      winlab port-forward node-1 8080:80
    """
    from winlab import Lab
    from winlab.cli.kinds import access as kinds
    from winlab.errors import GuestError

    with Lab(lab).node(node).forwarded(*ports) as (made, ended):
        for one in made:
            row = kinds.Port(name=f"127.0.0.1:{one.local}", node=node, local=one.local, remote=one.remote)
            if not current().stream(kinds.Port, row):
                say(f"127.0.0.1:{one.local} -> {node}:{one.remote}")
        say("Until Ctrl-C.", error=True)
        sys.stdout.flush()
        try:
            while (why := ended()) is None:
                time.sleep(LOOK)
        except KeyboardInterrupt:
            return
    raise GuestError(f"The ssh connection to '{node}' was lost.", why=why, cure="Run the same command again.")


def ssh_config(_word: LabWord = None, lab: LabName = settings.DEFAULT_LAB) -> None:
    """Print entries for ~/.ssh/config, so that ssh, scp, rsync and editors know the nodes, as NODE.LAB.

    Examples:
      winlab ssh-config >> ~/.ssh/config   # then: ssh node-1.lab
    """
    from winlab import Lab

    say(Lab(lab).ssh_config(), end="")


def hosts(_word: LabWord = None, lab: LabName = settings.DEFAULT_LAB) -> None:
    """Print lines for /etc/hosts: the nodes' addresses and names.

    Examples:
      winlab hosts | sudo tee -a /etc/hosts
    """
    from winlab import Lab

    say(Lab(lab).hosts(), end="")


def env(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
    shell: Annotated[
        Literal["sh", "fish"] | None,
        typer.Option("--shell", help="Default: what SHELL says: fish, or else sh.", metavar="sh|fish"),
    ] = None,
) -> None:
    """Print commands for your shell, after which winlab and kubectl use this lab.

    Examples:
      eval "$(winlab env ci)"
      winlab env ci | source   # in fish
    """
    from winlab import Lab
    from winlab.cli.kinds import access as kinds

    variables = Lab(lab).environment()
    if current().answer(kinds.Variable, [kinds.Variable(name=name, value=value) for name, value in variables.items()]):
        return
    is_fish = shell == "fish" or (shell is None and Path(os.environ.get("SHELL", "")).name == "fish")
    for name, value in variables.items():
        say(f"set -gx {name} {_fish(value)}" if is_fish else f"export {name}={shlex.quote(value)}")


def _fish(text: str) -> str:
    """A word in fish's single quotes, in which backslashes count (fishshell.com/docs/current/language.html#quotes)."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def inventory(_word: LabWord = None, lab: LabName = settings.DEFAULT_LAB) -> None:
    """Print an inventory for Ansible: groups by role, system and pool. There is no password in it.

    Examples:
      winlab inventory > hosts.yaml   # then: ansible -i hosts.yaml linux -m ping
    """
    from winlab import Lab

    say(Lab(lab).inventory(), end="")


def credentials(
    node: NodeName,
    password: Annotated[bool, typer.Option("--password", help="Print only the password.")] = False,
    lab: LabName = settings.DEFAULT_LAB,
) -> None:
    """Print a node's user, and its password or ssh key. They are the lab's secrets.

    Examples:
      winlab credentials node-1
      winlab credentials node-1 --password
    """
    from winlab import Lab
    from winlab.cli.kinds import access as kinds
    from winlab.errors import NotFoundError

    login = Lab(lab).node(node).login()
    if password:
        if not login.password:
            raise NotFoundError(f"'{node}' has no password.", cure=f"Its key is '{login.key}'.")
        say(login.password)
        return
    row = kinds.Login(name=node, user=login.user, address=login.address, key=str(login.key), password=login.password)
    if not current().answer(kinds.Login, [row]):
        say(f"user      {login.user}")
        say(f"address   {login.address}")
        if login.password:
            say(f"password  {login.password}")
        say(f"ssh key   {login.key}")
