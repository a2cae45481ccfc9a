// What makes forms quicker: copy buttons, dialogs, boxes picked in a row, a preview while one types.
import { parsed } from "./live.js";

export function startForms() {
  document.addEventListener("click", async (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      await navigator.clipboard?.writeText(copy.dataset.copy);
      document.getElementById("heard").textContent = "Copied";
      copy.classList.add("done");
      setTimeout(() => copy.classList.remove("done"), 1500);
    }
    const opener = event.target.closest("[data-dialog]");
    if (opener) {
      event.preventDefault();
      document.getElementById(opener.dataset.dialog)?.showModal();
    }
    const focus = event.target.closest("[data-focus]");
    if (focus) document.getElementById(focus.dataset.focus)?.focus();
    if (event.target.closest("[data-close]")) event.target.closest("dialog")?.close();
  });
  for (const table of document.querySelectorAll("[data-rows]")) picking(table);
  for (const field of document.querySelectorAll("[data-submit]")) field.addEventListener("change", () => field.form.requestSubmit());
  for (const form of document.querySelectorAll("form[data-preview]")) previewing(form);
  // a form is sent once
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method === "dialog" || event.defaultPrevented) return;
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "1";
    setTimeout(() => delete form.dataset.sent, 3000);
  });
  setTimeout(() => document.querySelector(".said")?.remove(), 20000);
}

// Shift picks a range; the bar below says how many.
function picking(table) {
  let last = null;
  const boxes = () => [...table.querySelectorAll("td.pick input")];
  const all = table.querySelector("th.pick input");
  const bar = document.querySelector(".picked");
  const tell = () => {
    const picked = boxes().filter((box) => box.checked).length;
    if (all) {
      all.checked = picked > 0 && picked === boxes().length;
      all.indeterminate = picked > 0 && !all.checked;
    }
    const told = bar?.querySelector("[data-picked]");
    if (told) told.textContent = picked ? `${picked} selected` : "Nothing selected";
    const whole = bar?.querySelector("[name=whole]");
    bar?.classList.toggle("none", !picked && !whole?.checked);
    for (const button of bar?.querySelectorAll("[data-needs-picked]") || []) button.disabled = !picked && !whole?.checked;
  };
  table.addEventListener("click", (event) => {
    const box = event.target.closest("td.pick input");
    if (!box) return;
    if (event.shiftKey && last) {
      const every = boxes();
      const [from, to] = [every.indexOf(last), every.indexOf(box)].sort((a, b) => a - b);
      for (const one of every.slice(from, to + 1)) one.checked = box.checked;
    }
    last = box;
    tell();
  });
  all?.addEventListener("change", () => {
    for (const box of boxes()) box.checked = all.checked;
    tell();
  });
  bar?.querySelector("[name=whole]")?.addEventListener("change", tell);
  tell();
}

// Asks the server what the form would do, while one types; the answer is a piece of a page.
function previewing(form) {
  const target = document.getElementById(form.dataset.preview);
  let timer = 0;
  let number = 0;
  const ask = async () => {
    const mine = ++number;
    const said = new URLSearchParams(new FormData(form));
    said.set("do", "preview");
    try {
      const answer = await fetch(form.action, { method: "POST", body: said, headers: { accept: "text/html" } });
      const found = parsed(await answer.text()).getElementById(form.dataset.preview);
      if (mine === number && found) target.replaceChildren(...document.importNode(found, true).childNodes);
    } catch {
      // the next key asks again
    }
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 400); });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.querySelector("button.main")?.click();
    }
  });
}
