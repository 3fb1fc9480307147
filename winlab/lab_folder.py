"""A lab's local folder: only what the lab itself can't hold.

::

    <state>/labs/<lab>/          0700
    ├── credentials.json         0600  passwords, keys, certificates
    ├── id_ed25519               0600  the key for ssh
    ├── known_hosts                    the host keys that winlab made for the nodes
    ├── ca.pem                         the CA to trust over WinRM
    ├── kubeconfig              0600  the cluster's administrator
    ├── kubectl                        a link to the kubectl of the cluster's version, in the cache
    ├── design.json              0600  the spec and the plan that the lab was made from
    ├── journal.jsonl            0600  what every create did
    ├── evidence/                0700  what was kept of machines that stopped
    ├── screens/                 0700  what machines showed while they booted
    ├── fresh/, former/          0700  while a copy gets its own credentials: these, and those that it must refuse
    └── staging-*                0700  files on their way into the lab; swept when the lab is next changed
    <state>/labs/<lab>.lock            held while the lab is being changed; beside the folder, which destroy removes
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from winlab import files, journal, locks, settings
from winlab.design.plan import credentials
from winlab.design.plan.credentials import Credentials
from winlab.design.plan.lab_name import check_lab_name
from winlab.design.plan.model import Plan
from winlab.errors import AccessError, ConflictError, HostError, NotFoundError, WinlabError
from winlab.events import Event, Listener, Progress

CURE = "Give yourself that folder (it may be root's, from 'sudo winlab'), or name another in WINLAB_STATE."

STAGING = "staging-"
CREDENTIALS = "credentials.json"


class LabFolder:
    """The folder of one lab. It is not created until something is written.

    :param within: the folder in it with other credentials of the lab; see :meth:`within`.
    :raises UsageError: the name can't be a folder's.
    """

    def __init__(self, lab: str, within: str = "") -> None:
        if lab in ("", ".", "..") or "/" in lab or "\0" in lab:
            check_lab_name(lab)  # which says what names can be
        self.lab = lab
        base = settings.state_dir() / "labs"
        self.path = base / lab / within
        self.ssh_key = self.path / "id_ed25519"
        self.known_hosts = self.path / "known_hosts"
        self.ca = self.path / "ca.pem"
        self.design = self.path / "design.json"
        self.journal = self.path / "journal.jsonl"
        self.kubeconfig = self.path / "kubeconfig"
        self.kubectl = self.path / "kubectl"
        self.lock = base / f"{lab}.lock"
        self._sweep_lock = base / ".staging.lock"  # no lab's own lock has this name
        self._writer = journal.Writer(self.journal, self._kept)

    def make(self) -> None:
        """Make the folder, for its owner alone.

        :raises HostError: there is no space.
        :raises AccessError: it can't be made.
        """
        with changing(self.path):
            files.make_parents(self.path)
            self.path.mkdir(exist_ok=True, mode=0o700)
            self.path.chmod(0o700)

    def write(self, path: Path, text: str, mode: int = 0o600) -> None:
        """Write a file in the folder atomically; it is never readable by others, not even briefly.

        :raises HostError: there is no space.
        :raises AccessError: it can't be written.
        """
        with self._kept(), changing(path):
            files.write_atomic(path, text, mode=mode, durable=True)

    def credentials(self) -> Credentials:
        """The lab's credentials.

        :raises NotFoundError: this account does not have them, so it can't log in.
        :raises AccessError: they can't be read.
        """
        path = self.path / CREDENTIALS
        try:
            return Credentials.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise NotFoundError(
                f"The credentials of the lab '{self.lab}' are not in this account.",
                why=f"'{path}' does not exist. Another user made the lab, or its folder was removed.",
                cure="Use the account that made it; or 'winlab destroy' (which needs no credentials), then 'create'.",
            ) from error
        except OSError as error:
            raise AccessError(
                f"The credentials of the lab '{self.lab}' can't be read.", why=str(error), cure=CURE, causes=[error]
            ) from error
        except ValidationError as error:
            raise WinlabError(
                f"The lab's credentials in '{path}' are damaged.",
                why=str(error),
                cure="Destroy the lab and create it again.",
            ) from error

    def within(self, name: str) -> LabFolder:
        """A folder in this one, with other credentials of the lab, and their files for ssh and WinRM."""
        return LabFolder(self.lab, name)

    def keep_credentials(self, plan: Plan, made: Credentials) -> None:
        """Replace the lab's credentials, and their files for ssh and WinRM.

        :raises HostError: there is no space.
        :raises AccessError: they can't be written.
        """
        self.write(self.path / CREDENTIALS, made.model_dump_json(indent=1))
        for path, (text, mode) in self._files(made, plan).items():
            self.write(path, text, mode)

    def take(self, plan: Plan, fresh: LabFolder) -> None:
        """Replace the lab's credentials and its kubeconfig by those of another folder.

        :raises WinlabError: they can't be read or written.
        """
        self.keep_credentials(plan, fresh.credentials())
        if fresh.has(fresh.kubeconfig):
            self.write(self.kubeconfig, fresh.kubeconfig.read_text(encoding="utf-8"))

    def drop(self, name: str) -> None:
        """Remove a folder of :meth:`within`, if it is there.

        :raises AccessError: it can't be removed.
        """
        path = self.within(name).path
        with changing(path):
            if path.exists():
                shutil.rmtree(path)

    def credentials_fit(self, plan: Plan) -> bool:
        """Whether there are credentials, for exactly these nodes."""
        try:
            made = self.credentials()
        except WinlabError:
            return False
        names = {node.name for node in plan.nodes}
        return made.identity == credentials.identity(plan) and names <= made.nodes.keys()

    def has_credentials_of(self, nodes: Collection[str]) -> bool:
        """Whether there are credentials for each of these nodes."""
        try:
            return not nodes or set(nodes) <= self.credentials().nodes.keys()
        except WinlabError:
            return False

    def ensure_credentials(self, plan: Plan) -> Credentials:
        """The lab's credentials, made now if none fit. Their files for ssh and WinRM are rewritten.

        Nodes that have credentials already keep theirs.
        """
        if self.credentials_fit(plan):
            made = self.credentials()
            for path, (text, mode) in self._files(made, plan).items():
                self.write(path, text, mode)
            return made
        try:
            made = credentials.adapted(plan, self.credentials())
        except WinlabError:
            made = credentials.generate(plan)
        self.keep_credentials(plan, made)
        return made

    def has_credentials_for(self, plan: Plan) -> bool:
        """Whether there are credentials for exactly these nodes, and the files made of them have their content."""
        if not self.credentials_fit(plan):
            return False
        try:
            return all(path.read_text() == text for path, (text, _) in self._files(self.credentials(), plan).items())
        except (OSError, ValueError):
            return False

    def differing(self, plan: Plan) -> dict[Path, str]:
        """What is wrong with the files for ssh and WinRM, by file; empty if nothing is.

        :raises WinlabError: there are no credentials that can be read.
        """
        wrong = {}
        for path, (text, mode) in self._files(self.credentials(), plan).items():
            try:
                if path.read_text() != text:
                    wrong[path] = "other content"
                elif path.stat().st_mode & 0o777 & ~mode:
                    wrong[path] = f"open to others ({path.stat().st_mode & 0o777:04o})"
            except FileNotFoundError:
                wrong[path] = "missing"
            except (OSError, ValueError) as error:
                wrong[path] = f"can't be read: {error}"
        return wrong

    def _files(self, made: Credentials, plan: Plan) -> dict[Path, tuple[str, int]]:
        """The files for ssh and WinRM: their content and mode."""
        lines = [
            f"{node.floating},{node.name}.{plan.network.domain} {made.nodes[node.name].host_key_public}\n"
            for node in plan.nodes
        ]
        return {
            self.ssh_key: (made.ssh_key, 0o600),
            self.ca: (made.ca_certificate, 0o644),
            self.known_hosts: ("".join(lines), 0o644),
        }

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder for temporary files with secrets, readable by its owner alone.

        If winlab is killed, the next command that changes the lab removes it, or makes another one; destroy does, too.
        """
        new = not self.path.exists()
        try:
            with ExitStack() as stack:
                with self._sweeping(), changing(self.path):
                    path = Path(tempfile.mkdtemp(prefix=STAGING, dir=self.path))
                    stack.callback(shutil.rmtree, path, ignore_errors=True)
                    stack.enter_context(locks.folder(path))
                yield path
        finally:
            if new:
                with suppress(OSError, WinlabError), self._staging_lock():  # something else is in it by now
                    self.path.rmdir()

    @contextmanager
    def _staging_lock(self) -> Iterator[None]:
        path = self._sweep_lock
        with ExitStack() as held:
            with changing(path):
                files.make_parents(path)
                held.enter_context(locks.briefly(path))
            yield

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Make the folder, and keep :meth:`staging` from removing it for the length of a with-block."""
        with self._staging_lock():
            self.make()
            yield

    @contextmanager
    def _sweeping(self) -> Iterator[None]:
        """Remove the staging folders of processes that were killed; no process makes one inside the with-block."""
        with self._kept():
            for path in self.path.glob(f"{STAGING}*"):
                with suppress(OSError), locks.folder(path) as mine:
                    if mine:
                        shutil.rmtree(path, ignore_errors=True)
            yield

    def record(self, event: Event) -> str:
        """Add an event to the journal, as :meth:`winlab.journal.Writer.record` does; it never fails."""
        return self._writer.record(event)

    def has(self, path: Path) -> bool:
        """Whether a file of the folder is there.

        :raises AccessError: the folder is another user's.
        """
        try:
            return path.exists()
        except OSError as error:
            raise AccessError(f"'{self.path}' can't be read.", why=str(error), cure=CURE, causes=[error]) from error

    def journaled(self, tell: Listener) -> Listener:
        """A listener that also adds what it receives to the journal; for the holder of the lab's lock."""
        return journal.journaled(self._writer.record, tell, self.lab)

    def worker(self) -> int | None:
        """The process that is changing the lab now; None if there is none, or it can't be known."""
        return locks.holding(self.lock)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the lab, so that no other winlab changes it.

        :raises ConflictError: another winlab is working on it.
        :raises HostError: there is no space.
        :raises AccessError: the lock can't be made.
        """
        self.make()  # it stays while the lab is changed: staging() removes only what it made itself
        with ExitStack() as held:
            with changing(self.lock):
                mine = held.enter_context(locks.attempt(self.lock))
            if not mine:
                raise ConflictError(
                    f"Another winlab is changing the lab '{self.lab}'.",
                    why=f"Its process id is {locks.holder(self.lock)}.",
                    cure="Wait for it to end, or interrupt it.",
                )
            with self._sweeping():
                pass
            yield

    @contextmanager
    def held(self, progress: Progress, doing: str) -> Iterator[None]:
        """Lock the lab as :meth:`locked` does; if another winlab is *doing* that, wait until it ends.

        :raises HostError: there is no space.
        :raises AccessError: the lock can't be made.
        """
        with ExitStack() as held:
            with changing(self.lock):
                files.make_parents(self.lock)
                held.enter_context(locks.held(self.lock, progress, doing))
            yield

    def remove(self) -> None:
        """Remove the folder and everything in it, and the lock, which the caller holds.

        :raises AccessError: it can't be removed.
        """
        with changing(self.path):
            if self.path.exists():
                shutil.rmtree(self.path)
            self.lock.unlink(missing_ok=True)


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Explain an :class:`OSError` at changing *path*, in the state folder.

    :raises HostError: there is no space.
    :raises AccessError: anything else.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HostError(
                f"There is no space left for '{path}'.",
                why="Labs keep their credentials and journals there.",
                cure="Free some space, or name another folder in WINLAB_STATE. Then run the same command again.",
                causes=[error],
            ) from error
        raise AccessError(f"'{path}' can't be changed.", why=str(error), cure=CURE, causes=[error]) from error


def labs() -> list[str]:
    """The labs that have a folder in this account.

    :raises AccessError: the folder of all labs is another user's.
    """
    base = settings.state_dir() / "labs"
    try:
        return sorted(path.name for path in base.iterdir() if path.is_dir()) if base.is_dir() else []
    except OSError as error:
        raise AccessError(f"'{base}' can't be read.", why=str(error), cure=CURE, causes=[error]) from error
