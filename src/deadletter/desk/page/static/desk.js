// The scripts of the desk. Every page works without them; with them it is quicker and alive.
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startPalette } from "./palette.js";
import { startForms } from "./forms.js";
import { startSuggestions } from "./suggest.js";
import { startTimes } from "./times.js";

document.documentElement.classList.add("scripted");
startTimes();
startForms();
startPalette();
startSuggestions();
startKeys();
startLive();
document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
