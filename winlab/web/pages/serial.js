// A node's serial port, by xterm.js.

import { Terminal } from "./xterm/lib/xterm.mjs";
import { $, lab, node, socket } from "./common.js";

const terminal = new Terminal({ cols: 100, rows: 34, scrollback: 5000 });
const encoder = new TextEncoder();
let connection;

document.title = `${node} (${lab}), serial port`;
$("name").textContent = document.title;
terminal.open($("terminal"));
terminal.onData((text) => connection?.readyState === WebSocket.OPEN && connection.send(encoder.encode(text)));

function connect() {
  $("again").hidden = true;
  $("state").textContent = "connecting …";
  connection = new WebSocket(socket("/serial"));
  connection.binaryType = "arraybuffer";
  connection.onopen = () => { $("state").textContent = "connected"; terminal.focus(); };
  connection.onmessage = (event) => terminal.write(new Uint8Array(event.data));
  connection.onclose = (event) => {
    $("state").textContent = event.reason || "the connection has ended";
    $("again").hidden = false;
  };
}

$("again").onclick = connect;
connect();
