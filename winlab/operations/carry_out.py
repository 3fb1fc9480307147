"""Carries out jobs. Only this module takes a lab's lock, writes its journal and calls the engine.

If a step fails or the work is asked to stop, the error leaves the job and its locks end with it. Nothing is undone:
the same job resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

from winlab import stopping
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.engine import engine
from winlab.engine.lab_on_site import LabOnSite
from winlab.engine.step import Step
from winlab.events import Listener, Note, Progress
from winlab.lab_folder import LabFolder
from winlab.site import Site
from winlab.steps.states import WORK

T = TypeVar("T")
run_steps = engine.run  # for steps that need no lock


@dataclass(frozen=True)
class Underway:
    """A job that is being carried out.

    :param tell: also writes the lab's journal.
    :param held: other locks, which end with the job.
    :param cleaned: what the lab had left on hypervisors that answer again, as text; it was removed.
    """

    folder: LabFolder
    site: Site
    hypervisors: Hypervisors
    tell: Listener
    held: ExitStack
    cleaned: tuple[str, ...] = ()

    @property
    def lab(self) -> LabOnSite:
        """The lab, to work with its machines.

        :raises UsageError: the facts of a hypervisor can't be read.
        """
        return LabOnSite.find(self.folder.lab, self.site, self.hypervisors)

    def run(self, steps: Iterable[Step], verb: str) -> None:
        """Run steps; *verb* says what for."""
        run_steps(steps, self.tell, self.folder.lab, verb)

    def one_step(self, name: str, work: Callable[[Progress], T], usual: float, *, node: str = "") -> T:
        """Do work that is a single step, as :func:`one_step` does."""
        return one_step(name, work, self.tell, usual, lab=self.folder.lab, node=node)


@dataclass(frozen=True)
class Job(Generic[T]):
    """Work on one lab.

    :param work: does it under the lab's lock; returns the job's result.
    :param must_exist: the lab has machines. If another account made it, no folder and no journal of it stays here.
    :param nodes: of an existing lab, the nodes that the work needs; none: all.
    :param storage: each hypervisor must have its storage pool.
    :param moves: it may run although a move of a node was interrupted.
    :param locks: False: the work only reads, or calls :func:`hold`.
    """

    lab: str
    work: Callable[[Underway], T]
    must_exist: bool = False
    nodes: Sequence[str] = ()
    storage: bool = False
    moves: bool = False
    locks: bool = True


def carry_out(job: Job[T], site: Site, tell: Listener) -> T:
    """Carry out a job.

    :raises NotFoundError: there is no such lab, and the job needs one.
    :raises HostError: a hypervisor that has needed nodes does not answer; nothing was touched.
    :raises ConflictError: another winlab is working on the lab, or a move of a node was interrupted.
    :raises Stopped: the work was asked to stop.
    :raises WinlabError: the work failed.
    """
    # imports the guests' clients, which single steps don't need
    from winlab.operations import absent, look, move_note, remains

    folder = site.folder(job.lab)
    with site.storage() if job.storage else site.hypervisors() as hosts, ExitStack() as held:
        if job.must_exist:
            absent.require(job.lab, site, hosts, job.nodes)
            look.find(job.lab, hosts)
            for one in hosts.silent:  # it may have delayed the command
                tell(Note(lab=job.lab, text=f"{one} It is not needed now."))
        stopping.check()
        foreign = job.must_exist and not folder.path.exists()
        if job.locks:
            held.enter_context(folder.locked())
            if not job.moves:
                move_note.refuse(folder)
        if foreign:
            held.callback(folder.remove)
        cleaned: list[str] = []
        if job.locks:  # not in the journal: it may be another lab's
            hosts, cleaned = remains.clean(site, hosts, tell, job.lab)
        tell = tell if foreign else folder.journaled(tell)
        return job.work(Underway(folder, site, hosts, tell, held, tuple(cleaned)))


def hold(folder: LabFolder, held: ExitStack, progress: Progress, doing: str) -> None:
    """Lock another lab until *held* ends; if another winlab is *doing* that, wait.

    :raises WinlabError: the lock can't be made.
    """
    held.enter_context(folder.held(progress, doing))


def require_idle(folder: LabFolder) -> None:
    """Check that no other winlab is working on a lab now.

    :raises ConflictError: one is.
    """
    with folder.locked():
        pass


def one_step(
    name: str, work: Callable[[Progress], T], tell: Listener, usual: float, *, lab: str = "", node: str = ""
) -> T:
    """Do work that is a single step and needs no lock; returns its result. Events and interrupts are as for any step.

    :param name: the step's name in events.
    :param usual: how long it usually takes, in seconds.
    :param lab: the lab that it is done for.
    :param node: its node, if it is one node's.
    :raises WinlabError: the work failed.
    """
    results: list[T] = []
    step = Step(WORK(lab, node, of=name), lambda progress: results.append(work(progress)), lambda: False, usual=usual)
    run_steps([step], tell, lab, name)
    return results[0]
