// Instants, durations and numbers as a person reads them. Times are of the viewer's zone, or of UTC if that is chosen.

const KEPT = "dueq-utc";
let utc = remembered();
const listeners = new Set();

function remembered() {
  try {
    return localStorage.getItem(KEPT) === "1";
  } catch {
    return false;
  }
}

export const inUtc = () => utc;
export const onZone = (listener) => listeners.add(listener);

/** Show times in UTC, or in the viewer's zone. */
export function chooseUtc(chosen) {
  const inputs = [...document.querySelectorAll("input[type=datetime-local]")].map((input) => [input, fromInput(input.value)]);
  utc = chosen;
  try {
    localStorage.setItem(KEPT, chosen ? "1" : "0");
  } catch { /* a browser that keeps nothing */ }
  formats.clear();
  retell();
  for (const [input, ms] of inputs) {
    if (ms !== null) input.value = toInput(ms);
    input.dispatchEvent(new Event("input"));
  }
  for (const listener of listeners) listener();
}

/** Say all instants anew: they are told in another zone, or what was today is yesterday. */
export function retell() {
  for (const element of document.querySelectorAll("time[data-ms]")) {
    element.textContent = instant(+element.dataset.ms);
  }
}

export function zoneName() {
  const part = new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset" }).formatToParts(new Date())
    .find((each) => each.type === "timeZoneName");
  return part ? part.value.replace("GMT", "UTC") : "UTC";
}

const formats = new Map();

function format(name, options) {
  if (!formats.has(name)) {
    formats.set(name, new Intl.DateTimeFormat("en-GB", { ...options, timeZone: utc ? "UTC" : undefined }));
  }
  return formats.get(name);
}

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };

/** 09:00:00 */
export const clock = (ms) => format("clock", CLOCK).format(ms);

/** 09:00 */
export const minute = (ms) => format("minute", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(ms);

/** Mon 2 */
export const day = (ms) => format("day", { weekday: "short", day: "numeric", month: "short" }).format(ms);

/** 2026-11-23 09:00:00.000, the day left out if it is today. */
export function instant(ms) {
  const fraction = String(((ms % 1000) + 1000) % 1000).padStart(3, "0");
  const time = `${clock(ms)}.${fraction}`;
  const date = format("date", { year: "numeric", month: "2-digit", day: "2-digit" });
  if (date.format(ms) === date.format(Date.now())) return time;
  const parts = Object.fromEntries(date.formatToParts(ms).map((part) => [part.type, part.value]));
  return `${parts.year}-${parts.month}-${parts.day} ${time}`;
}

/** The instant in UTC, in full. */
export const iso = (ms) => (Math.abs(ms) <= 8.64e15 ? new Date(ms).toISOString() : `${ms} ms`);

/** The instant of an answer, ms: after the year 9999 the gateway says those. */
export const said = (text) => (/^\d+$/.test(text) ? Number(text) : Date.parse(text));

/** A time element: the viewer's zone, UTC in its title. */
export function timeElement(ms) {
  const element = document.createElement("time");
  element.dateTime = iso(ms);
  element.title = `${iso(ms)} (UTC)`;
  element.dataset.ms = ms;
  element.textContent = instant(ms);
  return element;
}

/** What <input type=datetime-local> holds, and back. */
export function toInput(ms) {
  const date = new Date(utc ? ms : ms - new Date(ms).getTimezoneOffset() * 60_000);
  return date.toISOString().slice(0, 19);
}

export function fromInput(text) {
  if (!text) return null;
  const ms = new Date(utc ? `${text}Z` : text).getTime();
  return Number.isNaN(ms) ? null : ms;
}

/** 1,234,567 */
export const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en-US"));

/** 1.2M */
export const short = (value) =>
  value.toLocaleString("en-US", { notation: value >= 10_000 ? "compact" : "standard", maximumFractionDigits: 1 });

/** 3 messages */
export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/** Nobody tells of a partition without leader: that numbers fall with it must not look as if messages were lost. */
export const uncounted = (leaderless) => (leaderless
  ? ` What ${count(leaderless, "partition")} without leader ${leaderless === 1 ? "holds" : "hold"} is not counted.` : "");

/** 1.5 s, 4 min, 2 h, 3 d */
export function duration(seconds) {
  const value = Math.abs(seconds);
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${(Math.round(value * 10) / 10).toString()} s`;
  if (value < 100) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172_800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86_400)} d`;
}

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

/** A text of somebody else, in which nothing hides or turns the direction of the rest. */
export const visible = (text) => text.replace(UNSEEN, (found) => `\\u{${found.codePointAt(0).toString(16)}}`);

const UNITS = [["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]];

/** 14d, 1h30m, 0s: exactly, as the gateway reads it. */
export function exactly(seconds) {
  let left = seconds;
  let text = "";
  for (const [unit, length] of UNITS) {
    const whole = unit === "s" ? Math.round(left * 1000) / 1000 : Math.floor(left / length);
    if (whole) text += `${whole}${unit}`;
    left -= whole * length;
  }
  return text || "0s";
}

/** 250 ms */
export function milliseconds(ms) {
  if (ms === null || ms === undefined) return "more than an hour";
  return ms < 10 ? `${ms} ms` : duration(ms / 1000);
}

export function bytes(value) {
  if (value < 1024) return count(value, "byte");
  if (value < 1 << 20) return `${(value / 1024).toFixed(1)} KiB`;
  return `${(value / (1 << 20)).toFixed(1)} MiB`;
}
