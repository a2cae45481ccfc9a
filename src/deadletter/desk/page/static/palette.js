// Ctrl+K: every view, every action of this page, a group or letter by its number, or words to look for.
import { suggestions } from "./suggest.js";

let places = [];
let chosen = 0;
let offered = [];

export function startPalette() {
  const dialog = document.getElementById("palette");
  const input = dialog.querySelector("input");
  const list = dialog.querySelector("ul");
  for (const button of document.querySelectorAll("[data-open]")) {
    button.addEventListener("click", () => {
      const wanted = document.getElementById(button.dataset.open);
      wanted.showModal();
      wanted.dispatchEvent(new CustomEvent("desk:opened"));
    });
  }
  dialog.addEventListener("desk:opened", () => {
    input.value = "";
    offered = [];
    fill(input, list);
    input.focus();
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  input.addEventListener("input", () => {
    fill(input, list);
    suggestions(input.value.trim(), (found) => {
      offered = found;
      fill(input, list);
    });
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      show(input, list, (chosen + (event.key === "ArrowDown" ? 1 : -1) + places.length) % Math.max(places.length, 1));
    } else if (event.key === "Enter" && places[chosen]) {
      event.preventDefault();
      dialog.close();
      places[chosen].go();
    }
  });
  list.addEventListener("click", (event) => {
    const at = [...list.children].indexOf(event.target.closest("li"));
    if (at < 0) return;
    dialog.close();
    places[at].go();
  });
}

function fill(input, list) {
  const said = input.value.trim();
  const found = [];
  for (const link of document.querySelectorAll("[data-go]")) {
    found.push({ name: link.querySelector("span").textContent, hint: `g ${link.dataset.go}`, go: () => link.click() });
  }
  for (const button of document.querySelectorAll("main [data-key]:is(button, a, summary)")) {
    const name = (button.getAttribute("aria-label") || button.firstChild?.textContent || "").trim();
    if (name) found.push({ name, hint: button.dataset.key, go: () => button.click() });
  }
  const wanted = said.toLowerCase();
  places = found.filter((one) => one.name.toLowerCase().includes(wanted));
  for (const one of offered) places.push({ name: one.text, hint: one.kind, go: () => { location.href = one.address; } });
  const numbered = /^(?:(g|group|l|letter|r|replay)\s*)?(\d+)$/i.exec(said);
  if (numbered) {
    const kind = (numbered[1] || "").charAt(0).toLowerCase();
    const kinds = { g: ["group", "/groups/"], l: ["letter", "/letters/"], r: ["replay", "/replays/"] };
    for (const [short, [name, path]] of Object.entries(kinds)) {
      if (!kind || kind === short) places.unshift({ name: `${name} ${numbered[2]}`, hint: "go", go: () => { location.href = path + numbered[2]; } });
    }
  }
  if (said) places.push({ name: `find “${said}”`, hint: "letters", go: () => { location.href = `/letters?q=${encodeURIComponent(said)}`; } });
  list.replaceChildren(...places.map((one, at) => {
    const item = document.createElement("li");
    item.id = `place-${at}`;
    item.setAttribute("role", "option");
    for (const text of [one.name, one.hint]) {
      const span = document.createElement("span");
      span.textContent = text;
      item.append(span);
    }
    return item;
  }));
  show(input, list, 0);
}

function show(input, list, at) {
  chosen = at;
  [...list.children].forEach((item, number) => item.setAttribute("aria-selected", String(number === at)));
  list.children[at]?.scrollIntoView({ block: "nearest" });
  if (list.children[at]) input.setAttribute("aria-activedescendant", list.children[at].id);
  else input.removeAttribute("aria-activedescendant");
}
