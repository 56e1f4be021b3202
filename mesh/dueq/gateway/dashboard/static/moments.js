// A field for an instant. It says what the instant is in UTC, and what the change of the clocks makes of it.

import { field, h, say } from "./dom.js";
import { fromInput, inUtc, iso, toInput } from "./words.js";

const SHIFTS_MS = [1_800_000, 3_600_000];

/** A labelled <input type=datetime-local>. */
export function moment(label, input, hint = "") {
  const told = h("small", { class: "moment" });
  const tell = () => say(told, read(input.value));
  input.addEventListener("input", tell);
  tell();
  const made = field(label, input, hint);
  made.append(told);
  return made;
}

function read(text) {
  const ms = fromInput(text);
  if (ms === null || inUtc()) return "";
  const minute = (value) => value.slice(0, 16);
  const meant = toInput(ms);
  const utc = `${iso(ms).slice(0, 19).replace("T", " ")} UTC`;
  if (minute(meant) !== minute(text)) return `The clocks are put forward: there is no ${text.slice(11, 16)} on that day. Taken as ${meant.slice(11, 16)}, ${utc}.`;
  const twice = SHIFTS_MS.some((shift) => minute(toInput(ms + shift)) === minute(text) || minute(toInput(ms - shift)) === minute(text));
  return twice ? `The clocks are put back: this time comes twice on that day. Taken as ${utc}; show times in UTC to choose the other.` : `${utc}.`;
}
