"""WS-Management as Windows Remote Management uses it for its command shell ([MS-WSMV]); no sockets, no authentication.

:meth:`Service.handle` takes the body of a POST and returns status and answer, so tests need no network. The
actions are Identify, Create, Command, Receive, Send, Signal and Delete.
"""

from __future__ import annotations

import base64
import re
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from winlab_standin.guest.releases import Windows
from winlab_standin.guest.shell import Cancelled, Leave, Shell, Streams

ENVELOPE = "http://www.w3.org/2003/05/soap-envelope"
ADDRESSING = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
WSMAN = "http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd"
SHELL = "http://schemas.microsoft.com/wbem/wsman/1/windows/shell"
TRANSFER = "http://schemas.xmlsoap.org/ws/2004/09/transfer"
FAULT = "http://schemas.microsoft.com/wbem/wsman/1/wsmanfault"
IDENTITY = "http://schemas.dmtf.org/wbem/wsman/identity/1/wsmanidentity.xsd"
CMD = f"{SHELL}/cmd"

# Codes of WSManFault (winerror.h, wsmerror.h)
TIMED_OUT = 2150858793
NO_SHELL = 2150858843  # the shell was not found
BAD_ACTION = 2150858802
BAD_RESOURCE = 2150858752
BAD_REQUEST = 2150858778
NO_COMMAND = 2150859174
IDLE_SECONDS = 7200.0  # winrm/config/winrs: IdleTimeout, if a shell requests no other


class FaultError(Exception):
    """A SOAP fault: the code of WSManFault, the SOAP code and subcode, and the text."""

    def __init__(self, code: int, subcode: str, text: str, role: str = "Sender") -> None:
        super().__init__(text)
        self.code = code
        self.subcode = subcode
        self.role = role


@dataclass
class Command:
    """A command that runs, or has run: its output waits for the client."""

    identity: str
    shell: Shell
    condition: threading.Condition = field(default_factory=threading.Condition)
    output: list[tuple[str, bytes]] = field(default_factory=list)
    code: int | None = None
    input: bytearray = field(default_factory=bytearray)
    input_ended: bool = False
    console: bool = False  # its input is the console's, which never ends
    ended: bool = False  # by a signal

    def write(self, stream: str) -> Callable[[str], None]:
        """The writer of a stream."""

        def write(text: str) -> None:
            with self.condition:
                if self.ended:
                    raise Cancelled
                self.output.append((stream, text.encode("utf-8")))
                self.condition.notify_all()

        return write

    def read(self) -> str:
        """All input, once it has ended."""
        with self.condition:
            while not self.input_ended and not self.ended:
                self.condition.wait(1)
            return self.input.decode("utf-8", "replace")

    def run(self, line: str, direct: bool) -> None:
        """Run the command to its end; *direct*: without cmd.exe."""
        streams = Streams(self.write("stdout"), self.write("stderr"), self.read)
        try:
            code = self.shell.spawn(line, streams) if direct else self.shell.run(line, streams)
        except (Cancelled, Leave):
            code = 0xC000013A  # STATUS_CONTROL_C_EXIT
        except Exception as error:  # the client must see a bug of the stand-in
            self.output.append(("stderr", f"stand-in: {type(error).__name__}: {error}\r\n".encode()))
            code = 1
        with self.condition:
            self.code = code
            self.condition.notify_all()


@dataclass
class Session:
    """A shell in the sense of WinRM: folder, variables and commands."""

    identity: str
    cwd: str
    variables: dict[str, str]
    idle: float = IDLE_SECONDS  # it ends after this many seconds without a request
    used: float = field(default_factory=time.monotonic)
    commands: dict[str, Command] = field(default_factory=dict)

    def left(self) -> bool:
        """Whether it had no request for longer than it may be idle."""
        return time.monotonic() - self.used > self.idle


def _text(node: ElementTree.Element | None, default: str = "") -> str:
    return (node.text or default).strip() if node is not None else default


def seconds(text: str, default: float = 20.0) -> float:
    """An XML duration such as ``PT20S`` or ``PT1M30.5S``, in seconds."""
    match = re.fullmatch(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?", text.strip())
    if not match or not any(match.groups()):
        return default
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest


class Service:
    """All shells of the machine. *make* returns a new cmd.exe."""

    def __init__(self, make: Callable[[], Shell], windows: Windows | None = None) -> None:
        self.make = make
        self.windows = windows or Windows()
        self.sessions: dict[str, Session] = {}
        self.lock = threading.Lock()

    def handle(self, body: bytes) -> tuple[int, bytes]:
        """Answer one request: HTTP status and SOAP envelope."""
        relates = ""
        try:
            try:
                root = ElementTree.fromstring(body)  # noqa: S314  # expat refuses external entities
            except ElementTree.ParseError as error:
                raise FaultError(BAD_REQUEST, "w:SchemaValidationError", f"The XML is not valid: {error}") from error
            if root.find(f"{{{ENVELOPE}}}Body/{{{IDENTITY}}}Identify") is not None:
                return 200, _identify(self.windows)
            header = root.find(f"{{{ENVELOPE}}}Header")
            relates = _text(root.find(f"{{{ENVELOPE}}}Header/{{{ADDRESSING}}}MessageID"))
            if header is None:
                raise FaultError(BAD_REQUEST, "w:SchemaValidationError", "The request has no header.")
            action = _text(header.find(f"{{{ADDRESSING}}}Action"))
            answer = self._act(action, header, root.find(f"{{{ENVELOPE}}}Body"))
            return 200, _envelope(f"{action}Response", relates, answer)
        except FaultError as fault:
            return 500, _fault(fault, relates)

    def _act(self, action: str, header: ElementTree.Element, body: ElementTree.Element | None) -> str:
        resource = _text(header.find(f"{{{WSMAN}}}ResourceURI"))
        if resource.rstrip("/") != CMD:
            raise FaultError(
                BAD_RESOURCE,
                "a:DestinationUnreachable",
                f"The WS-Management service cannot process the request. The resource URI ({resource}) was not found.",
            )
        if body is None:
            raise FaultError(BAD_REQUEST, "w:SchemaValidationError", "The request has no body.")
        if action == f"{TRANSFER}/Create":
            return self._create(header, body)
        session = self._session(header)
        if action == f"{TRANSFER}/Delete":
            return self._delete(session)
        acts = {"Command": self._command, "Receive": self._receive, "Send": self._send, "Signal": self._signal}
        act = acts.get(action.removeprefix(f"{SHELL}/"))
        if act is None:
            raise FaultError(BAD_ACTION, "a:ActionNotSupported", f"The action {action} is not supported.")
        session.used = time.monotonic()
        try:
            return act(session, header, body)
        finally:
            session.used = time.monotonic()

    def _session(self, header: ElementTree.Element) -> Session:
        identity = ""
        for selector in header.findall(f"{{{WSMAN}}}SelectorSet/{{{WSMAN}}}Selector"):
            if selector.get("Name") == "ShellId":
                identity = _text(selector)
        with self.lock:
            for left in [one for one in self.sessions.values() if one.left()]:
                self._delete_locked(left)
            session = self.sessions.get(identity.upper())
        if session is None:
            raise FaultError(
                NO_SHELL,
                "w:InvalidSelectors",
                "The request for the Windows Remote Shell with ShellId "
                f"{identity} failed because the shell was not found on the server. Possible causes are: the specified "
                "ShellId is incorrect or the shell no longer exists on the server.",
            )
        return session

    def _create(self, header: ElementTree.Element, body: ElementTree.Element) -> str:
        del header
        shell = body.find(f"{{{SHELL}}}Shell")
        if shell is None:
            raise FaultError(BAD_REQUEST, "w:SchemaValidationError", "The request has no shell.")
        variables = {
            item.get("Name", ""): item.text or ""
            for item in shell.findall(f"{{{SHELL}}}Environment/{{{SHELL}}}Variable")
        }
        cwd = _text(shell.find(f"{{{SHELL}}}WorkingDirectory"), "C:\\Users\\Administrator")
        idle = seconds(_text(shell.find(f"{{{SHELL}}}IdleTimeOut")), IDLE_SECONDS)
        session = Session(str(uuid.uuid4()).upper(), cwd, variables, idle)
        with self.lock:
            self.sessions[session.identity] = session
        return (
            f"<x:ResourceCreated><a:Address>http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous</a:Address>"
            f"<a:ReferenceParameters><w:ResourceURI>{CMD}</w:ResourceURI><w:SelectorSet>"
            f'<w:Selector Name="ShellId">{session.identity}</w:Selector></w:SelectorSet></a:ReferenceParameters>'
            f"</x:ResourceCreated><rsp:Shell><rsp:ShellId>{session.identity}</rsp:ShellId>"
            f"<rsp:ResourceUri>{CMD}</rsp:ResourceUri><rsp:Owner>Administrator</rsp:Owner>"
            f"<rsp:IdleTimeOut>PT{idle:.3f}S</rsp:IdleTimeOut><rsp:InputStreams>stdin</rsp:InputStreams>"
            f"<rsp:OutputStreams>stdout stderr</rsp:OutputStreams></rsp:Shell>"
        )

    def _delete(self, session: Session) -> str:
        with self.lock:
            self._delete_locked(session)
        return ""

    def _delete_locked(self, session: Session) -> None:
        self.sessions.pop(session.identity, None)
        for command in session.commands.values():
            _end(command)

    def _command(self, session: Session, header: ElementTree.Element, body: ElementTree.Element) -> str:
        line = body.find(f"{{{SHELL}}}CommandLine")
        if line is None:
            raise FaultError(BAD_REQUEST, "w:SchemaValidationError", "The request has no command line.")
        words = [_text(line.find(f"{{{SHELL}}}Command"))]
        words += [item.text or "" for item in line.findall(f"{{{SHELL}}}Arguments")]
        options = {
            item.get("Name", "").upper(): _text(item)
            for item in header.findall(f"{{{WSMAN}}}OptionSet/{{{WSMAN}}}Option")
        }
        shell = self.make()
        shell.cwd, shell.variables = session.cwd, dict(session.variables)
        command = Command(str(uuid.uuid4()).upper(), shell)
        shell.cancelled = lambda: command.ended
        session.commands[command.identity] = command
        command.console = options.get("WINRS_CONSOLEMODE_STDIN", "TRUE").upper() == "TRUE"
        direct = options.get("WINRS_SKIP_CMD_SHELL", "FALSE").upper() == "TRUE"
        threading.Thread(target=command.run, args=(" ".join(words), direct), daemon=True).start()
        return f"<rsp:CommandResponse><rsp:CommandId>{command.identity}</rsp:CommandId></rsp:CommandResponse>"

    def _find(self, session: Session, identity: str | None) -> Command:
        command = session.commands.get((identity or "").upper())
        if command is None:
            raise FaultError(NO_COMMAND, "w:InvalidSelectors", f"There is no command with the CommandId {identity}.")
        return command

    def _receive(self, session: Session, header: ElementTree.Element, body: ElementTree.Element) -> str:
        wanted = body.find(f"{{{SHELL}}}Receive/{{{SHELL}}}DesiredStream")
        if wanted is None:
            raise FaultError(BAD_REQUEST, "w:SchemaValidationError", "The request names no stream.")
        command = self._find(session, wanted.get("CommandId"))
        limit = time.monotonic() + seconds(_text(header.find(f"{{{WSMAN}}}OperationTimeout")))
        with command.condition:
            while not command.output and command.code is None:
                left = limit - time.monotonic()
                if left <= 0:
                    raise FaultError(
                        TIMED_OUT,
                        "w:TimedOut",
                        "The WS-Management service cannot complete the operation within the time specified in "
                        "OperationTimeout.",
                        "Receiver",
                    )
                command.condition.wait(left)
            output, command.output = command.output[:64], command.output[64:]
            done = command.code is not None and not command.output
        return _received(command, output, done)

    def _send(self, session: Session, header: ElementTree.Element, body: ElementTree.Element) -> str:
        del header
        for stream in body.findall(f"{{{SHELL}}}Send/{{{SHELL}}}Stream"):
            command = self._find(session, stream.get("CommandId"))
            with command.condition:
                command.input += base64.b64decode(_text(stream))
                ended = stream.get("End", "false").lower() in ("true", "1")
                command.input_ended = command.input_ended or (ended and not command.console)
                command.condition.notify_all()
        return "<rsp:SendResponse/>"

    def _signal(self, session: Session, header: ElementTree.Element, body: ElementTree.Element) -> str:
        del header
        signal = body.find(f"{{{SHELL}}}Signal")
        if signal is None:
            raise FaultError(BAD_REQUEST, "w:SchemaValidationError", "The request has no signal.")
        command = self._find(session, signal.get("CommandId"))
        code = _text(signal.find(f"{{{SHELL}}}Code")).rpartition("/")[2].lower()
        if code not in ("terminate", "ctrl_c", "ctrl_break"):
            raise FaultError(BAD_REQUEST, "w:SchemaValidationError", f"The signal '{code}' is unknown.")
        _end(command)
        if code == "terminate":
            session.commands.pop(command.identity, None)
        return "<rsp:SignalResponse/>"


def _end(command: Command) -> None:
    with command.condition:
        command.ended = True
        command.condition.notify_all()


def _received(command: Command, output: list[tuple[str, bytes]], done: bool) -> str:
    parts = []
    for name in ("stdout", "stderr"):
        data = b"".join(block for stream, block in output if stream == name)
        if data:
            text = base64.b64encode(data).decode()
            parts.append(f'<rsp:Stream Name="{name}" CommandId="{command.identity}">{text}</rsp:Stream>')
    state = "Done" if done else "Running"
    code = ""
    if done:
        parts += [
            f'<rsp:Stream Name="{name}" CommandId="{command.identity}" End="true"/>' for name in ("stdout", "stderr")
        ]
        code = f"<rsp:ExitCode>{command.code}</rsp:ExitCode>"
    about = f'CommandId="{command.identity}" State="{SHELL}/CommandState/{state}"'
    parts.append(f"<rsp:CommandState {about}>{code}</rsp:CommandState>")
    return f"<rsp:ReceiveResponse>{''.join(parts)}</rsp:ReceiveResponse>"


def _envelope(action: str, relates: str, body: str) -> bytes:
    return (
        f'<s:Envelope xml:lang="en-US" xmlns:s="{ENVELOPE}" xmlns:a="{ADDRESSING}" xmlns:w="{WSMAN}" '
        f'xmlns:x="{TRANSFER}" xmlns:rsp="{SHELL}"><s:Header><a:Action>{escape(action)}</a:Action>'
        f"<a:MessageID>uuid:{str(uuid.uuid4()).upper()}</a:MessageID>"
        f"<a:To>http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous</a:To>"
        f"<a:RelatesTo>{escape(relates)}</a:RelatesTo></s:Header><s:Body>{body}</s:Body></s:Envelope>"
    ).encode()


def _fault(fault: FaultError, relates: str) -> bytes:
    text = escape(str(fault))
    body = (
        f"<s:Fault><s:Code><s:Value>s:{fault.role}</s:Value><s:Subcode><s:Value>{fault.subcode}</s:Value></s:Subcode>"
        f'</s:Code><s:Reason><s:Text xml:lang="en-US">{text}</s:Text></s:Reason><s:Detail>'
        f'<f:WSManFault xmlns:f="{FAULT}" Code="{fault.code}" Machine="127.0.0.1"><f:Message>{text}</f:Message>'
        f"</f:WSManFault></s:Detail></s:Fault>"
    )
    return _envelope(f"{WSMAN.rsplit('/', 1)[0]}/fault", relates, body)


def _identify(windows: Windows) -> bytes:
    return (
        f'<s:Envelope xmlns:s="{ENVELOPE}"><s:Header/><s:Body><i:IdentifyResponse xmlns:i="{IDENTITY}">'
        f"<i:ProtocolVersion>{WSMAN}</i:ProtocolVersion><i:ProductVendor>Microsoft Corporation</i:ProductVendor>"
        f"<i:ProductVersion>OS: 10.0.{windows.release.build} SP: 0.0 Stack: 3.0</i:ProductVersion></i:IdentifyResponse>"
        "</s:Body></s:Envelope>"
    ).encode()
