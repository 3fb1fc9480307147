// A node's screen, by noVNC.

import RFB from "./novnc/core/rfb.js";
import keysyms from "./novnc/core/input/keysymdef.js";
import { $, ask, at, lab, node, socket } from "./common.js";

const SHIFT = 0xffe1, ENTER = 0xff0d;
const SHIFTED = /[A-Z~!@#$%^&*()_+{}|:"<>?]/; // on a US keyboard
const PAUSE = 15; // milliseconds between two keys: firmware and Windows Setup read slowly
let rfb;

document.title = `${node} (${lab})`;
$("name").textContent = document.title;

async function connect() {
  $("again").hidden = true;
  say("connecting …");
  try {
    const credentials = await ask(at(lab, node, "/password"), {});
    rfb = new RFB($("screen"), socket("/screen"), { credentials });
  } catch (error) {
    return ended(error.message);
  }
  rfb.scaleViewport = true;
  rfb.background = "#000";
  rfb.addEventListener("connect", () => { say("connected"); rfb.focus(); });
  rfb.addEventListener("disconnect", (event) => ended(event.detail.clean ? "the screen has ended" : "no connection"));
  rfb.addEventListener("securityfailure", (event) => say(`refused: ${event.detail.reason || ""}`));
  rfb.addEventListener("clipboard", (event) => navigator.clipboard.writeText(event.detail.text).catch(() => {}));
}

function say(text) {
  $("state").textContent = text;
}

function ended(why) {
  say(why);
  $("again").hidden = false;
}

async function type(text) {
  for (const sign of text.replaceAll("\r\n", "\n")) {
    const keysym = sign === "\n" ? ENTER : keysyms.lookup(sign.codePointAt(0));
    const shifted = SHIFTED.test(sign);
    if (shifted) rfb.sendKey(SHIFT, "ShiftLeft", true);
    rfb.sendKey(keysym, null);
    if (shifted) rfb.sendKey(SHIFT, "ShiftLeft", false);
    await new Promise((done) => setTimeout(done, PAUSE));
  }
  rfb.focus();
}

$("cad").onclick = () => { rfb.sendCtrlAltDel(); rfb.focus(); };
$("full").onclick = () => $("screen").requestFullscreen();
$("again").onclick = connect;
$("fit").onclick = () => {
  rfb.scaleViewport = !rfb.scaleViewport;
  $("fit").textContent = rfb.scaleViewport ? "Actual size" : "Fit to window";
};
$("type").onclick = async () => {
  $("text").value = await navigator.clipboard.readText().catch(() => "");
  $("ask").showModal();
};
$("ask").onclose = () => {
  const text = $("text").value;
  $("text").value = "";
  if ($("ask").returnValue) {
    rfb.clipboardPasteFrom(text); // for guests with an agent that has a clipboard
    type(text);
  }
};
connect();
