// "3 min ago" stays true while a page is open.
const UNITS = [["d", 86400e3], ["h", 3600e3], ["min", 60e3], ["s", 1e3]];

export function ago(atMs, nowMs) {
  const passed = nowMs - atMs;
  const span = Math.abs(passed);
  if (span < 1000) return "now";
  const [unit, unitMs] = UNITS.find(([, ms]) => span >= ms);
  const amount = span / unitMs;
  const whole = unitMs < 3600e3 || amount >= 10;
  const said = `${whole ? (unitMs < 3600e3 ? Math.floor(amount) : Math.round(amount)) : amount.toFixed(1).replace(/\.0$/, "")} ${unit}`;
  return passed > 0 ? `${said} ago` : `in ${said}`;
}

export function freshen(root = document) {
  const now = Date.now();
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = Date.parse(one.dateTime);
    if (Number.isNaN(at)) continue;
    const said = ago(at, now);
    if (one.textContent !== said) one.textContent = said;
  }
}

export function startTimes() {
  setInterval(() => { if (document.visibilityState === "visible") freshen(); }, 5000);
}
