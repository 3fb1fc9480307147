// What the pages share: requests, elements, and the names in the address.

const query = new URLSearchParams(location.search);
export const lab = query.get("lab"), node = query.get("node");
export const at = (name, one, rest = "") =>
  `/labs/${encodeURIComponent(name)}${one ? `/nodes/${encodeURIComponent(one)}` : ""}${rest}`;
export const socket = (rest) => `ws://${location.host}${at(lab, node, rest)}`;
export const $ = (id) => document.getElementById(id);

// The JSON of a request; an Error with winlab's own words if it fails.
export async function ask(path, body) {
  const sent = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const answer = await fetch(path, sent);
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  let words = text.trim();
  try {
    words = JSON.parse(text).failures.map(sentence).join("\n");
  } catch { /* it is not winlab's JSON */ }
  throw new Error(words || answer.statusText);
}

export const sentence = (failure) =>
  [failure.what, failure.why, failure.cure && `Cure: ${failure.cure}`].filter(Boolean).join(" ");

// An element. Texts are always text: guests may have written them.
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
