// A page that stays true: it hears that something changed, asks for itself again, and replaces piece by piece
// what is otherwise. Nothing moves under a pointer or a focus: new rows wait behind a button.
import { freshen } from "./times.js";

const EVERY_MS = 5000;
const HEARD_MS = 1000;
const LATE = 3;
const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("deadletter", { createHTML: (text) => text })
  : { createHTML: (text) => text };
let etag = null;
let asking = false;
let timer = 0;
let stream = null;
let waiting = false;
let heard = false;
let late = 0;

export function parsed(text) {
  return new DOMParser().parseFromString(policy.createHTML(text), "text/html");
}

export function startLive() {
  if (!document.querySelector("[data-live]") || document.body.dataset.still) return;
  document.addEventListener("visibilitychange", () => (document.visibilityState === "visible" ? wake() : sleep()));
  document.addEventListener("desk:changed", () => soon(0));
  if (document.visibilityState === "visible") wake(true);
}

function wake(first = false) {
  heard = true; // what happened before the stream was there, nobody heard
  if (!first) soon(0);
  else soon(EVERY_MS);
  if (!stream && window.EventSource) {
    stream = new EventSource("/api/v1/events");
    stream.addEventListener("open", () => { waiting = true; });
    stream.addEventListener("changed", (event) => { if (concerns(event.data)) { heard = true; soon(HEARD_MS); } });
    stream.addEventListener("error", () => {
      waiting = false;
      soon(EVERY_MS);
    });
  }
}

// Whether news are about what this page shows (`data-about`); a page that does not say hears all.
function concerns(data) {
  const wanted = document.body.dataset.about.split(" ").filter(Boolean);
  try {
    return !wanted.length || JSON.parse(data).about.some((one) => wanted.includes(one));
  } catch {
    return true;
  }
}

function sleep() {
  clearTimeout(timer);
  timer = 0;
  stream?.close();
  stream = null;
  waiting = false;
}

function soon(ms) {
  if (timer && ms >= EVERY_MS) return;
  clearTimeout(timer);
  timer = setTimeout(ask, ms);
}

async function ask() {
  timer = 0;
  if (document.visibilityState !== "visible") return;
  if (asking) return soon(HEARD_MS); // what is heard meanwhile may not be in the answer that comes
  asking = true;
  try {
    const answer = await fetch(location.href, { headers: etag ? { "if-none-match": etag, accept: "text/html" } : { accept: "text/html" }, redirect: "manual", cache: "no-store" });
    if (answer.type === "opaqueredirect" || answer.status === 401) return location.reload(); // signed out
    if (answer.status === 200) {
      etag = answer.headers.get("etag");
      apply(parsed(await answer.text()));
    }
    away(!(answer.ok || answer.status === 304 || answer.status === 404));
  } catch {
    away(true);
  } finally {
    asking = false;
    // what a page shows may be some seconds old when it hears of news (`data-behind`), and more of them where
    // the broker is busy: it asks a few times more, and ever later
    const behind = Number(document.body.dataset.behind) || 0;
    const poll = document.querySelector("[data-poll]");
    if (heard) late = behind ? LATE : 0;
    heard = false;
    if (!waiting || !document.getElementById("away").hidden) soon(EVERY_MS);
    else if (late) soon(behind * 2 ** (LATE - late--));
    else if (poll) soon(Number(poll.dataset.poll));
  }
}

function away(is) {
  const told = document.getElementById("away");
  if (is && told.hidden) {
    const when = told.querySelector("time");
    when.textContent = new Date().toLocaleTimeString();
  }
  told.hidden = !is;
}

function apply(fresh) {
  for (const now of document.querySelectorAll("[data-live]")) {
    const then = fresh.querySelector(`[data-live="${CSS.escape(now.dataset.live)}"]`);
    if (!then) continue;
    if ("rowsLive" in now.dataset && busy(now)) keepRows(now, then);
    else morph(now, then);
  }
  for (const then of fresh.querySelectorAll("[data-live]")) {
    if (!document.querySelector(`[data-live="${CSS.escape(then.dataset.live)}"]`)) return swapMain(fresh);
  }
  freshen();
}

// A region came that was not there: the whole middle, unless somebody is in it.
function swapMain(fresh) {
  const now = document.querySelector("main");
  if (!now.contains(document.activeElement) || document.activeElement === now) morph(now, fresh.querySelector("main"));
  freshen();
}

function busy(body) {
  return body.matches(":hover") || body.contains(document.activeElement) || body.querySelector("input:checked, tr.at");
}

// Rows that are there change in place; those that come or go wait for a click.
function keepRows(now, then) {
  const there = new Map([...now.children].map((row) => [row.dataset.key, row]));
  let fresh = 0;
  for (const row of then.children) {
    const old = there.get(row.dataset.key);
    if (old) morph(old, row);
    else fresh += 1;
  }
  const table = now.closest("table");
  let button = table.previousElementSibling?.matches(".rows-news") ? table.previousElementSibling : null;
  if (!fresh) return button?.remove();
  if (!button) {
    button = document.createElement("div");
    button.className = "rows-news";
    button.append(document.createElement("button"));
    table.before(button);
  }
  const said = `${fresh} new`;
  button.firstChild.type = "button";
  button.firstChild.textContent = said;
  button.firstChild.onclick = () => { morph(now, then); button.remove(); freshen(); };
  document.getElementById("heard").textContent = said;
}

// Makes `now` what `then` is, keeping nodes: focus, selection, scroll and what is open stay.
export function morph(now, then) {
  attributes(now, then);
  const keyed = new Map();
  for (const child of now.children) if (child.dataset?.key) keyed.set(child.dataset.key, child);
  let place = now.firstChild;
  for (const wanted of [...then.childNodes]) {
    const key = wanted.dataset?.key;
    let match = key ? keyed.get(key) : place;
    if (key && match && match !== place) now.insertBefore(match, place);
    if (match && same(match, wanted)) {
      if (match.nodeType === Node.TEXT_NODE) {
        if (match.data !== wanted.data) match.data = wanted.data;
      } else if (match.nodeType === Node.ELEMENT_NODE && !match.isEqualNode(wanted)) morph(match, wanted);
      place = match.nextSibling;
    } else {
      const made = document.importNode(wanted, true);
      if (key && made.classList) made.classList.add("fresh");
      now.insertBefore(made, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function same(one, other) {
  if (one.nodeType !== other.nodeType || one.nodeName !== other.nodeName) return false;
  return one.nodeType !== Node.ELEMENT_NODE || (one.dataset.key || "") === (other.dataset.key || "");
}

const OWN = { DETAILS: ["open"], INPUT: ["value", "checked"], DIALOG: ["open"], OPTION: ["selected"] };

function attributes(now, then) {
  if (now.nodeType !== Node.ELEMENT_NODE) return;
  const own = OWN[now.nodeName] || [];
  for (const { name, value } of [...then.attributes]) {
    if (!own.includes(name) && now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
  for (const { name } of [...now.attributes]) {
    if (!then.hasAttribute(name) && !own.includes(name) && !(name === "class" && now.classList.contains("at"))) now.removeAttribute(name);
  }
}
