// All labs: their machines, screens, snapshots, topology and timeline; verbs by a click.

import { $, ask, at, element, sentence } from "./common.js";

const EVERY = 1500, PICTURES = 4000; // milliseconds
const VERBS = {
  start: { label: "Start" },
  stop: { label: "Stop", question: (what) => `Shut down ${what}?` },
  restart: { label: "Restart", question: (what) => `Shut down ${what}, and start it again?` },
  suspend: { label: "Suspend" },
  resume: { label: "Resume" },
  snapshot: { label: "Save a snapshot", field: true, optional: true, question: (what) => `Save ${what} as:` },
  clone: { label: "Clone", field: true, question: (what) => `A running copy of ${what}, called:` },
};
const cards = new Map();
let chosen = decodeURIComponent(location.hash.slice(1)), drawn = "", ended = 0;

async function look() {
  try {
    show(await ask(`/state${chosen ? `?lab=${encodeURIComponent(chosen)}` : ""}`));
  } catch (error) {
    $("trouble").textContent = error instanceof TypeError ? "winlab ui has ended." : error.message;
  }
  setTimeout(look, EVERY);
}

function show(state) {
  $("trouble").textContent = state.trouble.join("\n");
  showJobs(state.jobs);
  if (!state.labs) return; // they have not answered yet
  if (!state.labs.some((one) => one.lab === chosen)) chosen = state.labs[0]?.lab ?? "";
  $("labs").replaceChildren(...state.labs.map((one) => {
    const running = one.nodes.filter((each) => each.state === "running").length;
    const button = element("button", { onclick: () => choose(one.lab) },
      one.lab, element("span", { className: "faint" }, `  ${running} of ${one.nodes.length} run`));
    if (one.lab === chosen) button.setAttribute("aria-current", "true");
    return element("li", {}, button);
  }));
  const lab = state.labs.find((one) => one.lab === chosen);
  $("lab").hidden = !lab;
  $("empty").hidden = Boolean(lab);
  if (lab) showLab(lab, state.view?.lab === chosen ? state.view : null);
}

function choose(name) {
  chosen = name;
  location.hash = encodeURIComponent(name);
}

function showLab(lab, view) {
  $("name").textContent = lab.lab;
  $("phase").textContent = phase(view);
  const known = new Map(view?.nodes.map((one) => [one.node, one]));
  const key = JSON.stringify([lab.lab, lab.nodes.map((one) => [one.node, one.state, one.hypervisor])]);
  for (const [name, card] of cards)
    if (card.lab !== lab.lab || !lab.nodes.some((one) => one.node === name)) {
      card.remove();
      cards.delete(name);
    }
  for (const one of lab.nodes) {
    if (!cards.has(one.node)) {
      cards.set(one.node, newCard(lab.lab, one.node));
      $("nodes").append(cards.get(one.node));
    }
    cards.get(one.node).update(one, known.get(one.node));
  }
  if (key !== drawn) redraw(lab.lab);
  drawn = key;
}

function redraw(name) {
  $("graph").src = at(name, "", `/graph.svg?${Date.now()}`);
  $("timeline").src = at(name, "", `/timeline?${Date.now()}`);
  showSnapshots(name);
}

function phase(view) {
  const run = view?.run;
  if (!run) return view?.trouble ?? "";
  if (run.state !== "running") return `last: ${run.command}, ${run.state}`;
  const left = run.left === null ? "" : `, about ${clock(run.left)} left`;
  return `${run.command}: ${run.done} of ${run.total} steps${left}`;
}

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.round(seconds) % 60).padStart(2, "0")}`;

function newCard(lab, name) {
  const page = (kind) => `/files/${kind}.html?${new URLSearchParams({ lab, node: name })}`;
  const picture = element("img", { alt: `Screen of ${name}` });
  const link = element("a", { href: page("screen"), target: "_blank", title: "Open the screen" }, picture);
  const light = element("span", { className: "light" });
  const facts = element("p", { className: "faint" }), doing = element("p"), bar = element("progress", { max: 1 });
  const open = (kind, label) => element("button", { onclick: () => window.open(page(kind)) }, label);
  const power = element("button", { onclick: () => begin(lab, power.dataset.verb, [name]) });
  const card = element("article", { className: "node", lab }, link, element("div", {},
    element("p", {}, light, element("strong", {}, name)), facts, doing, bar,
    element("p", { className: "buttons" }, open("screen", "Screen"), open("serial", "Serial"), power)));
  let looked = 0;
  picture.onerror = () => { picture.hidden = true; };
  picture.onload = () => { picture.hidden = false; };
  card.update = (machine, view) => {
    light.dataset.state = machine.state;
    facts.textContent = `${machine.state} · ${machine.role} · ${machine.image} · ${machine.address}`;
    doing.textContent = view?.steps.map((step) => (step.text ? `${step.step}: ${step.text}` : step.step)).join("; ")
      || view?.problem || "";
    bar.hidden = !view?.steps.length;
    bar.value = view?.total ? view.done / view.total : 0;
    power.dataset.verb = machine.state === "off" ? "start" : machine.state === "running" ? "stop" : "resume";
    power.textContent = VERBS[power.dataset.verb].label;
    if (machine.state === "off") picture.hidden = true;
    else if (Date.now() - looked > PICTURES && !document.hidden) {
      looked = Date.now();
      picture.src = at(lab, name, `/thumbnail.png?${looked}`);
    }
  };
  return card;
}

async function showSnapshots(name) {
  let found = [];
  try {
    found = await ask(at(name, "", "/snapshots"));
  } catch { /* the next look reports what does not answer */ }
  const size = (bytes) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
  $("snapshots").replaceChildren(...found.map((one) => element("tr", {},
    element("td", {}, one.name), element("td", {}, one.made ? new Date(one.made * 1000).toLocaleString() : one.problem),
    element("td", {}, size(one.disk)), element("td", {},
      element("button", { onclick: () => reset(name, one.name), disabled: Boolean(one.problem) }, "Reset to it"), " ",
      element("button", { onclick: () => begin(name, "clone", [], one.name), disabled: Boolean(one.problem) }, "Clone it")))));
  if (!found.length) $("snapshots").textContent = "There are no snapshots of this lab.";
}

async function reset(lab, snapshot) {
  if (await confirmed(`Put ${lab} back to '${snapshot}'? What it did since is lost.`, "Reset") !== null)
    send(lab, "reset", { snapshot });
}

async function begin(lab, verb, nodes = [], snapshot = "") {
  const { label, question, field = false, optional = false } = VERBS[verb];
  const what = nodes.length ? nodes.join(", ") : `the lab '${lab}'`;
  const name = question ? await confirmed(question(what), label, field, optional) : "";
  if (name !== null) send(lab, verb, { nodes, name, snapshot });
}

// The text that was typed; null if the user decided against it.
function confirmed(question, label, field = false, optional = false) {
  $("question").textContent = question;
  $("yes").textContent = label;
  $("field").hidden = !field;
  $("answer").value = "";
  $("answer").required = field && !optional;
  $("ask").returnValue = "";
  $("ask").showModal();
  return new Promise((done) => {
    $("ask").onclose = () => done($("ask").returnValue ? $("answer").value : null);
  });
}

async function send(lab, verb, given) {
  try {
    await ask(at(lab, "", `/do/${verb}`), given);
  } catch (error) {
    $("trouble").textContent = error.message;
  }
}

function showJobs(jobs) {
  $("jobs").replaceChildren(...jobs.slice(0, 4).map((job) => {
    const text = job.failures.map(sentence).join("\n") || job.text;
    const made = element("div", { className: "job" }, element("strong", {}, `${job.verb} ${job.lab}: ${job.state}`),
      element("div", { className: job.failures.length ? "failure" : "faint" }, job.state === "done" ? "" : text));
    made.dataset.state = job.state;
    return made;
  }));
  const now = jobs.filter((job) => job.state !== "running").length;
  if (now !== ended && chosen) redraw(chosen);
  ended = now;
}

$("verbs").append(...Object.entries(VERBS).map(([verb, { label }]) =>
  element("button", { id: `do-${verb}`, onclick: () => begin(chosen, verb) }, label)));
look();
