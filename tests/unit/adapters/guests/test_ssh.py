"""ssh to a node that goes away, falls silent, or prints endlessly. The server is paramiko's, on a pair of sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import paramiko
import plans
import pytest
import runs
from sftp_peer import AnyLogin

from winlab import stopping
from winlab.adapters.guests import answering, silence, ssh, ssh_command
from winlab.adapters.guests.silence import Silence
from winlab.adapters.guests.ssh import SshGuest
from winlab.design.plan import tags
from winlab.errors import GuestError, SilentError, UnreachableError, UsageError
from winlab.lab_folder import LabFolder

Play = Callable[[paramiko.Channel, "Sshd"], None]


class Sshd(AnyLogin):
    """A node's ssh server. ``play`` answers each command."""

    def __init__(self, host_key: paramiko.PKey, play: Play) -> None:
        self._play = play
        self.commands: list[bytes] = []
        super().__init__(host_key)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.commands.append(command)
        return self.answer(self._play, channel, self)


Login = Callable[[Play], tuple[SshGuest, Sshd]]


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> Iterator[Login]:
    plan, folder = plans.make(plans.TCG, "1-0-1"), LabFolder("lab")
    made = folder.ensure_credentials(plan)
    tag = tags.of(plan, plan.nodes[0])
    (folder.path / "host_key").write_text(made.nodes[tag.node].host_key)
    key = paramiko.Ed25519Key(filename=str(folder.path / "host_key"))
    opened: list[tuple[SshGuest, Sshd]] = []

    def log_in(play: Play) -> tuple[SshGuest, Sshd]:
        server = Sshd(key, play)
        monkeypatch.setattr(ssh, "dial", lambda _address, _timeout: server.here)
        opened.append((SshGuest(tag, folder, 10), server))
        return opened[-1]

    yield log_in
    for guest, server in opened:
        guest.close()
        server.transport.close()


def ends(code: int) -> Play:
    def play(channel: paramiko.Channel, _sshd: Sshd) -> None:
        while channel.recv(1 << 15):
            pass  # the client sends to a channel that is open
        channel.sendall(b"out" * 50_000)
        channel.send_exit_status(code)
        time.sleep(0.2)
        channel.sendall_stderr(b"err")  # sshd may send output after the exit code
        channel.close()

    return play


def silent(_channel: paramiko.Channel, _sshd: Sshd) -> None:
    pass


def endless(channel: paramiko.Channel, _sshd: Sshd) -> None:
    with suppress(OSError, EOFError):
        while True:
            channel.sendall(b"x" * 10_000)


def goes_away(_channel: paramiko.Channel, sshd: Sshd) -> None:
    sshd.transport.sock.close()


def is_killed(channel: paramiko.Channel, _sshd: Sshd) -> None:
    channel.shutdown_write()
    channel.close()


@pytest.mark.parametrize("sent", [b"x" * 1000, b"SSH-2.0-x\r\n" + bytes(1000)])
def test_a_failed_login_leaves_no_thread_behind(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """N15: paramiko's thread read an endless banner, with half a CPU."""
    plan, folder = plans.make(plans.TCG, "1-0-1"), LabFolder("lab")
    folder.ensure_credentials(plan)
    before = set(threading.enumerate())
    here, there = socket.socketpair()

    def send() -> None:
        with suppress(OSError):
            while True:
                there.sendall(sent)
                time.sleep(0.01)

    threading.Thread(target=send, daemon=True).start()
    monkeypatch.setattr(ssh, "dial", lambda _address, _timeout: here)
    with pytest.raises(UnreachableError, match="does not answer ssh"):
        SshGuest(tags.of(plan, plan.nodes[0]), folder, 1)
    limit = time.monotonic() + 60
    with closing(there):
        while left := set(threading.enumerate()) - before:
            assert time.monotonic() < limit, left
            time.sleep(0.05)


def test_output_and_exit_code(login: Login) -> None:
    guest, server = login(ends(7))
    out, err = bytearray(), bytearray()
    assert guest.execute(["echo", "a b"], out.extend, err.extend, b"input") == 7
    assert (len(out), bytes(err)) == (150_000, b"err")
    assert server.commands == [b"echo 'a b'"]


def cat(channel: paramiko.Channel, _sshd: Sshd) -> None:
    while chunk := channel.recv(1 << 15):
        channel.sendall(chunk)
    channel.send_exit_status(0)
    channel.close()


def test_a_command_may_print_as_much_as_it_is_given(login: Login) -> None:
    """More than both ends keep for each other: neither waits until the other takes it."""
    guest, _ = login(cat)
    out, given = bytearray(), bytes(range(256)) * (6 << 12)
    assert guest.execute(["cat"], out.extend, stdin=given) == 0
    assert bytes(out) == given


def test_a_connection_that_is_cut_is_lost_and_not_a_failure_of_the_script(login: Login) -> None:
    guest, _ = login(goes_away)
    with pytest.raises(UnreachableError, match="was lost") as caught:
        guest.execute(["kubeadm init"])
    assert "serial" in caught.value.cure
    with pytest.raises(UnreachableError, match="was lost"):
        guest.execute(["true"])


def test_a_command_that_a_signal_ended_is_not_a_lost_connection(login: Login) -> None:
    guest, _ = login(is_killed)
    assert guest.execute(["kubeadm init"]) == -1


@pytest.mark.parametrize("play", [silent, endless])
def test_an_interrupt_ends_it_within_seconds(login: Login, play: Play) -> None:
    guest, _ = login(play)
    stop = threading.Event()
    begun = time.monotonic()
    threading.Timer(0.3, stop.set).start()
    with stopping.by(stop), pytest.raises(stopping.Stopped):
        guest.execute(["kubeadm init"])
    assert time.monotonic() - begun < 5


LIMIT = 10.0  # seconds


def test_a_silent_command_is_not_waited_for_forever(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = runs.clock(monkeypatch, silence)

    def waits(channel: paramiko.Channel, sshd: Sshd) -> None:
        clock.now += LIMIT + 1
        silent(channel, sshd)

    guest, server = login(waits)
    quiet = Silence("'prepare' in 'controller-1'", LIMIT, lambda _: None)
    with pytest.raises(SilentError, match="'prepare' in 'controller-1' has been silent for 11 s"):
        guest.execute(["prepare"], quiet.breaks(bytearray().extend), stdin=b"input", waiting=quiet.look)
    assert server.transport.is_active()


def test_a_command_that_speaks_runs_on(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its pauses is shorter than the limit, and all together are longer."""
    clock, heard = runs.clock(monkeypatch, silence), bytearray()
    arrived = threading.Semaphore(0)

    def hear(piece: bytes) -> None:
        heard.extend(piece)
        arrived.release()

    def speaks(channel: paramiko.Channel, _sshd: Sshd) -> None:
        for _ in range(4):
            clock.now += 0.6 * LIMIT
            channel.sendall(b"importing\n")
            arrived.acquire(timeout=60)
        channel.send_exit_status(0)
        channel.close()

    guest, server = login(speaks)
    quiet = Silence("'prepare' in 'controller-1'", LIMIT, lambda _: None)
    assert guest.execute(["prepare"], quiet.breaks(hear), waiting=quiet.look) == 0
    assert heard.count(b"importing") == 4
    assert server.transport.is_active()


def test_an_interrupt_ends_a_login_to_an_unresponsive_server(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    guest, _ = login(silent)
    here, there = socket.socketpair()
    monkeypatch.setattr(ssh, "dial", lambda _address, _timeout: here)
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    begun = time.monotonic()
    with stopping.by(stop), pytest.raises(stopping.Stopped):
        SshGuest(guest._tag, LabFolder("lab"), 30)
    assert time.monotonic() - begun < 5
    there.close()


def test_the_connection_checks_whether_the_guest_is_alive(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(paramiko.Transport, "set_keepalive", lambda _self, seconds: asked.append(seconds))
    login(silent)
    assert asked == [15]


def freezes(_channel: paramiko.Channel, sshd: Sshd) -> None:
    """The node's kernel acknowledges, as for a stopped process; the program reads nothing more."""
    sshd.transport.packetizer.read_message = lambda: time.sleep(60)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "KEEPALIVE", 0.2)
    monkeypatch.setattr(ssh, "SILENCE", 5.0)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_freezes_while_a_command_runs_is_lost(login: Login) -> None:
    guest, _ = login(freezes)
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match="was lost") as caught:
        guest.execute(["kubeadm init"])
    assert "frozen" in caught.value.why
    assert "serial" in caught.value.cure
    with pytest.raises(UnreachableError, match="was lost"):  # at once: the connection is closed
        guest.execute(["true"])
    assert time.monotonic() - begun < 40


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("stdin", [b"", b"x" * (8 << 20)])
def test_a_server_that_freezes_before_a_command_runs_is_lost(
    login: Login, stdin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would never grant the command, or take its input."""
    guest, server = login(freezes)

    def grant(channel: paramiko.Channel, _command: bytes) -> bool:
        freezes(channel, server)
        if not stdin:
            time.sleep(60)
        return True

    monkeypatch.setattr(server, "check_channel_exec_request", grant)
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match="was lost") as caught:
        guest.execute(["tar -x"], stdin=stdin)
    assert "frozen" in caught.value.why
    assert time.monotonic() - begun < 40


def test_a_server_that_answers_may_be_silent_for_long(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSH answers each question, if only that it does not know it."""
    clock = runs.clock(monkeypatch, answering)
    over = threading.Event()

    def last(channel: paramiko.Channel, _sshd: Sshd) -> None:
        over.wait(60)
        channel.send_exit_status(5)
        channel.shutdown_write()
        channel.close()

    def later() -> None:
        """Ten seconds later, all questions are answered."""
        for thread in threading.enumerate():
            if "_ask" in thread.name:
                thread.join(60)
        clock.now += 10
        if clock.now > 10 * ssh.SILENCE:
            over.set()

    guest, _ = login(last)
    assert guest.execute(["kubeadm init"], waiting=later) == 5


def test_the_kernel_gives_up_a_guest_that_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int, int]] = []

    class Socket:
        def setsockopt(self, *option: int) -> None:
            given.append(option)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "create_connection", lambda _where, _timeout: Socket())
    ssh.dial("172.31.240.33", 10)
    assert given == [(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)]


def test_the_users_configuration_of_ssh_is_not_read() -> None:
    plan = plans.make(plans.TCG, "1-0-1")
    words = [str(word) for word in ssh_command.arguments(tags.of(plan, plan.nodes[0]), LabFolder("lab"))]
    assert words[words.index("-F") + 1] == "none"
    options = [words[at + 1] for at, word in enumerate(words) if word == "-o"]
    assert {"ForwardAgent=no", "ForwardX11=no"} <= set(options)
    # a node that falls silent ends the session after a minute
    assert {"ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=4"} <= set(options)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a b #c", "a b #c"),
        ("job%2Fmain", "job%%2Fmain"),  # F16: hashicorp/vagrant#7863
        ('a "b"', 'a \\"b\\"'),
        ("a\\b", "a\\\\b"),
        ("$HOME 'ü'", "$HOME 'ü'"),
    ],
)
def test_the_labs_folder_is_written_as_ssh_reads_it(
    name: str, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With OpenSSH 9.2, ``ssh -G`` and ``ssh -v`` show the paths that are meant."""
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / name))
    plan = plans.make(plans.TCG, "1-0-1")
    words = [str(word) for word in ssh_command.arguments(tags.of(plan, plan.nodes[0]), LabFolder("lab"))]
    where = f"{tmp_path}/{written}/labs/lab"
    for option in (f'IdentityFile="{where}/id_ed25519"', f'UserKnownHostsFile="{where}/known_hosts"'):
        assert words[words.index(option) - 1] == "-o"
    assert "-i" not in words  # ssh then looks for a file of that very name, and expands what it found


@pytest.mark.parametrize("name", ["a${HOME}b", "a\nb"])
def test_a_folder_that_ssh_can_not_be_given(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / name))
    plan = plans.make(plans.TCG, "1-0-1")
    with pytest.raises(UsageError, match="ssh can't use the path"):
        ssh_command.arguments(tags.of(plan, plan.nodes[0]), LabFolder("lab"))


def test_a_node_is_known_by_its_name_whatever_its_address(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    guest, server = login(ends(0))
    folder, tag = LabFolder("lab"), guest._tag
    known = folder.known_hosts.read_text()
    name, key = "controller-1.lab.winlab.internal", " ".join(known.split()[1:])
    assert known == f"{tag.floating},{name} {key}\n"
    words = [str(word) for word in ssh_command.arguments(tag, folder)]
    assert words[words.index(f"HostKeyAlias={name}") - 1] == "-o"
    assert words[-1] == f"winlab@{tag.floating}"

    def log_in(hosts: str, address: str) -> int:
        folder.known_hosts.write_text(hosts)
        again = Sshd(server.transport.get_server_key(), ends(0))
        dialled: list[str] = []
        monkeypatch.setattr(ssh, "dial", lambda where, _timeout: dialled.append(where) or again.here)
        try:
            other = SshGuest(tag.model_copy(update={"floating": address}), folder, 10)
            assert dialled == [address]
            with closing(other):
                return other.execute(["true"])
        finally:
            again.transport.close()

    assert log_in(known, "172.31.249.9") == 0  # as an earlier winlab wrote it
    assert log_in(f"{name} {key}\n", tag.floating) == 0
    wrong = paramiko.ECDSAKey.generate().get_base64()
    with pytest.raises(GuestError, match="is not 'controller-1'"):  # the address has that key, the name another one
        log_in(f"{tag.floating} {key}\n{name} ecdsa-sha2-nistp256 {wrong}\n", tag.floating)
    with pytest.raises(GuestError, match="does not answer ssh") as caught:
        log_in(f"{tag.floating} {key}\n", tag.floating)
    assert name in caught.value.why


def test_missing_host_keys_are_reported(login: Login) -> None:
    """Not as a bug: repair writes them again."""
    login(silent)
    LabFolder("lab").known_hosts.unlink()
    with pytest.raises(GuestError, match="host keys") as caught:
        login(silent)
    assert "winlab repair --lab lab" in caught.value.cure
