// What the last word could mean: queues, errors, groups, views; asked of the service a moment after one stops typing.
let asked = 0;
let last = null;

export function suggestions(text, then) {
  clearTimeout(asked);
  last?.abort();
  if (text.length < 2) return then([]);
  asked = setTimeout(async () => {
    last = new AbortController();
    try {
      const answer = await fetch(`/api/v1/suggestions?text=${encodeURIComponent(text.slice(0, 255))}`, { signal: last.signal });
      if (answer.ok) then((await answer.json()).suggestions);
    } catch (error) {
      if (error.name !== "AbortError") then([]);
    }
  }, 150);
}

// The list of the browser itself: its keys, its looks, what screen readers know.
export function startSuggestions() {
  for (const input of document.querySelectorAll("[data-suggest]")) {
    input.addEventListener("input", () => {
      const [, before, word] = /^(.*?)([^\s"]*)$/s.exec(input.value);
      const bare = word.slice(word.indexOf(":") + 1);
      suggestions(bare, (found) => input.list.replaceChildren(...found.filter((one) => one.word).map((one) => {
        const option = document.createElement("option");
        option.value = before + one.word;
        option.label = `${one.kind}: ${one.text}`;
        return option;
      })));
    });
  }
}
