// Every page: its head, its clock, its stream, and what is wrong.

import { h, put, say } from "./dom.js";
import { Live } from "./live.js";
import { chooseUtc, clock, day, inUtc, iso, onZone, retell, zoneName } from "./words.js";

const PAGES = {
  "/": () => import("./now.js"),
  "/topic": () => import("./topic.js"),
  "/messages": () => import("./messages.js"),
  "/create": () => import("./create.js"),
};

const AGAIN_MS = 1000;

const at = (id) => document.getElementById(id);
const here = new URLSearchParams(location.search);
const topic = here.get("topic") ?? "";

/** What pages use of their frame. */
export const frame = {
  topic,
  parameters: here,
  readOnly: false,
  live: null,
  title: "",

  /** Write the page's state into its address. */
  address(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (value === "" || value === null || value === undefined) here.delete(name);
      else here.set(name, value);
    }
    const query = here.toString();
    history.replaceState(null, "", query ? `${location.pathname}?${query}` : location.pathname);
  },
};

let offset = 0;
let known = new Set();
let today = "";

function tick() {
  const now = Date.now() + offset;
  const element = at("clock");
  say(element, clock(now));
  element.dateTime = iso(now);
  element.title = `${iso(now)} (UTC)`;
  if (today !== day(Date.now())) {
    today = day(Date.now());
    retell();
  }
}

function nameZone() {
  const button = at("zone");
  say(button, inUtc() ? "UTC" : zoneName());
  button.setAttribute("aria-pressed", String(inUtc()));
  button.title = inUtc() ? `Times are shown in UTC. Show them in your zone, ${zoneName()}.` : "Times are shown in your zone. Show them in UTC.";
  button.setAttribute("aria-label", inUtc() ? "Times in UTC; show them in your zone" : "Times in your zone; show them in UTC");
  tick();
}

function navigation() {
  const link = (href, text, current) => h("a", { href, "aria-current": current ? "page" : null }, text);
  const path = location.pathname;
  const own = topic ? `?${new URLSearchParams({ topic })}` : "";
  put(at("pages"),
    link("/", "Now", path === "/"),
    topic ? link(`/topic${own}`, topic, path === "/topic") : null,
    topic ? link(`/messages${own}`, "Messages", path === "/messages") : null,
    frame.readOnly ? null : link(`/create${own}`, "Create", path === "/create"));
}

/** Read new trouble aloud, and the end of old. */
function announce(alarms) {
  const serious = alarms.shown.filter((alarm) => alarm.level !== "note");
  const keys = new Map(serious.map((alarm) => [alarm.key, alarm]));
  const begun = serious.filter((alarm) => !known.has(alarm.key)).map((alarm) => alarm.what);
  const solved = [...known].filter((key) => !keys.has(key)).length;
  if (begun.length) say(at("say"), begun.join(" "));
  else if (solved) say(at("say"), alarms.serious ? `Solved; ${alarms.serious} more.` : "Solved. Nothing is wrong now.");
  known = new Set(keys.keys());
  document.title = `${alarms.serious ? `(${alarms.serious}) ` : ""}${frame.title} · dueq`;
}

function lost(text) {
  const element = at("lost");
  element.hidden = !text;
  say(element, text ? `${text} It connects again by itself; if the gateway has ended, start it: dueq gateway.` : "");
  document.body.classList.toggle("stale", Boolean(text));
  if (!text) say(at("say"), "The gateway is back.");
}

/** Ask what the gateway is; returns whether it said so. */
async function learn() {
  const about = await fetch("/dashboard/about").then((answer) => answer.json()).catch(() => ({}));
  if (!about.version) return false;
  frame.readOnly = Boolean(about.read_only);
  document.body.classList.toggle("read-only", frame.readOnly);
  put(at("build"), `dueq ${about.version}`, frame.readOnly ? " · read-only" : "");
  navigation();
  return true;
}

/** Ask until the gateway answers. */
async function waitForIt() {
  lost("The gateway does not answer.");
  while (!(await learn())) await new Promise((again) => setTimeout(again, AGAIN_MS));
  lost("");
}

async function begin() {
  nameZone();
  at("zone").addEventListener("click", () => chooseUtc(!inUtc()));
  onZone(nameZone);
  setInterval(tick, 250);
  const [page, known] = await Promise.all([(PAGES[location.pathname] ?? PAGES["/"])(), learn()]);
  const shown = page.show(frame);
  frame.title = shown.title;
  document.title = `${shown.title} · dueq`;
  put(at("main"), shown.element);
  if (!known) waitForIt();
  if (shown.live) {
    frame.live = new Live(shown.live, (view) => {
      offset = view.at - Date.now();
      announce(view.alarms);
      shown.update(view);
    }, (text) => {
      lost(text);
      if (!text) learn(); // it may be another one now
    });
  }
}

begin();
