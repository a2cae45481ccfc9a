// Keys for everything: rows, places, and whatever on the page says `data-key`.
const OFF = "deadletter-keys-off";
let began = 0;
let before = "";
const came = sessionStorage.getItem("deadletter-came") || "";
addEventListener("pagehide", () => sessionStorage.setItem("deadletter-came", location.href));

export function startKeys() {
  const off = document.querySelector("[data-keys-off]");
  off.checked = localStorage.getItem(OFF) === "1";
  off.addEventListener("change", () => localStorage.setItem(OFF, off.checked ? "1" : "0"));
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      return open("palette");
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || off.checked) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
    if (pressed(event.key, event.target)) event.preventDefault();
  });
}

function open(name) {
  const dialog = document.getElementById(name);
  if (!dialog.open) dialog.showModal();
  dialog.dispatchEvent(new CustomEvent("desk:opened"));
}

function pressed(key, target) {
  const then = Date.now() - began < 1500 ? before : "";
  before = "";
  if (then === "g") {
    const place = document.querySelector(`[data-go="${CSS.escape(key)}"]`);
    if (place) place.click();
    return Boolean(place);
  }
  switch (key) {
    case "g": before = "g"; began = Date.now(); return true;
    case "?": open("keys"); return true;
    case ":": open("palette"); return true;
    case "j": return move(1);
    case "k": return move(-1);
    case "Enter": return target.closest("a, button, summary, input") ? false : follow();
    case "x": return pick();
    case "u": return back();
    case "/": {
      const find = document.querySelector("[data-find]");
      find?.focus();
      find?.select();
      return Boolean(find);
    }
    default: {
      const what = document.querySelector(`[data-key="${CSS.escape(key)}"]:is(button, a, input, summary)`);
      if (!what) return false;
      what.click();
      return true;
    }
  }
}

const rows = () => [...document.querySelectorAll("[data-rows] tbody tr")];

function move(by) {
  const all = rows();
  if (!all.length) return false;
  const at = all.findIndex((row) => row.classList.contains("at"));
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  all[at]?.classList.remove("at");
  next.classList.add("at");
  next.querySelector(".what a, a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  return true;
}

function follow() {
  const link = document.querySelector("[data-rows] tr.at .what a, [data-rows] tr.at a");
  link?.click();
  return Boolean(link);
}

function pick() {
  const box = document.querySelector("[data-rows] tr.at .pick input");
  box?.click();
  return Boolean(box);
}

function back() {
  const up = document.querySelector("[data-up]");
  if (!up) return false;
  // the way one came keeps the row and the scroll
  if (came.split("?")[0] === up.href.split("?")[0] && history.length > 1) history.back();
  else up.click();
  return true;
}
