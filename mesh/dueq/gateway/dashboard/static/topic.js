// One topic: what is wrong with it, what is due, who takes it, its settings and what else it has.

import { act, ask, call, follow, path } from "./acts.js";
import { chart } from "./chart.js";
import { field, h, put, say, section, table } from "./dom.js";
import { moment } from "./moments.js";
import { lateness, state } from "./now.js";
import { seconds } from "./seconds.js";
import { figures, trouble } from "./trouble.js";
import { bytes, clock, count, duration, exactly, fromInput, iso, number, said, timeElement, uncounted, visible } from "./words.js";

const PAST_S = 300;
const SPANS = { 300: "5 minutes", 3600: "1 hour", 86400: "1 day", 604800: "1 week", 2592000: "30 days", 34560000: "400 days" };
const PAGE = 100;
const AGAIN_MS = 3000;

export function show(frame) {
  const { topic } = frame;
  if (!topic) {
    return { title: "Topic", element: h("div", { class: "page" }, h("h1", {}, "Which topic?"), h("p", {}, "The page ", h("a", { href: "/" }, "Now"), " has all of them.")) };
  }
  const own = new URLSearchParams({ topic });
  const wrong = trouble();
  const totals = figures();
  const late = figures();
  const counted = seconds(topic);
  const drawing = chart(`Messages of ${topic}`, (bar) => counted.open(bar.at * 1000, 3600));
  const exact = h("p", { class: "faint" });
  const consumers = table("Consumers", CONSUMERS, (row) => row.consumer, "No consumer is connected.");
  const parts = table("Partitions", PARTITIONS, (row) => row.index, "No broker tells of its partitions.");
  const more = h("p", { class: "faint" });
  const pause = h("button", { type: "button", class: "writes" }, "Pause");
  const facts = h("dl", { class: "facts" });
  const lists = h("div", { class: "page" });
  let ahead = Object.hasOwn(SPANS, frame.parameters.get("ahead")) ? frame.parameters.get("ahead") : "300";
  let info = null;
  let shown = "";

  const span = h("select", {}, Object.entries(SPANS).map(([value, text]) => h("option", { value, selected: value === ahead }, text)));
  span.addEventListener("change", () => {
    ahead = span.value;
    frame.address({ ahead: ahead === "300" ? "" : ahead });
    frame.live.open({ topic, ahead });
  });
  pause.addEventListener("click", () => (info?.paused ? resume(topic) : pausing(topic)));

  const acts = h("div", { class: "acts spaced", hidden: true },
    h("a", { class: "button", href: `/messages?${own}` }, "Messages"),
    h("a", { class: "button writes", href: `/create?${own}` }, "New message"),
    pause);
  const rest = h("div", { class: "page", hidden: true },
    section("Now and next", totals.element,
      h("div", { class: "tools spaced" }, field("Look ahead", span)), drawing.element, exact),
    counted.element,
    section("How late, in the last minute", late.element),
    section("Consumers", consumers.element),
    lists,
    section("Settings", h("div", { class: "panel" }, facts,
      h("p", { class: "acts spaced writes" }, h("button", { type: "button", onclick: () => changing(topic, info) }, "Change settings…")))),
    section("Partitions", parts.element, more),
    h("div", { class: "writes" }, section("What cannot be undone", h("div", { class: "acts" },
      h("button", { type: "button", class: "danger", onclick: () => purging(topic, info) }, "Cancel all that wait…"),
      h("button", { type: "button", class: "danger", onclick: () => deleting(topic, info) }, "Delete topic…")))));
  const element = h("div", { class: "page" }, h("div", {}, wrong.element, acts), rest);

  return {
    title: topic,
    element,
    live: { topic, ahead },
    update(view) {
      acts.hidden = rest.hidden = !view.topic;
      if (!view.topic) {
        // What else is wrong in the mesh is not what this page was opened for.
        wrong.update(view.fault ? view.alarms : { shown: [], more: 0, serious: 0 }, `There is no topic ${topic}.`, view.fault ? "" : "It may have been deleted. The page Now has all that there are.");
        return;
      }
      if (!info) loadLists(topic, lists);
      info = view.topic;
      wrong.update(view.alarms, `${topic}: all is well.`, lead(view));
      totals.update([
        { title: "scheduled", value: number(info.scheduled), href: `/messages?${own}` },
        { title: "due, waiting", value: number(info.ready), level: info.ready ? "warn" : "", href: `/messages?${own}` },
        { title: "with consumers", value: number(info.leased), href: `/messages?${own}&state=leased`, detail: count(info.consumers, "consumer") },
        { title: "dead", value: number(info.dead), level: info.dead ? "warn" : "", href: `/messages?${own}&state=dead` },
      ]);
      drawing.update({ ...view.chart, at: view.at, past: Number(ahead) > 300 ? 0 : PAST_S, ahead: Number(ahead), exact: Number(ahead) > 3600 ? null : view.exact, step: Number(ahead) > 3600 ? 3600 : 1 });
      say(exact, exactness(view));
      counted.suggest(view.at + 3_600_000);
      late.update(lateness(view.lateness));
      consumers.update(view.consumers);
      parts.update(view.parts);
      say(more, info.partitions > view.parts.length && view.parts.length ? `The ${view.parts.length} with most trouble, of ${number(info.partitions)}.` : "");
      say(pause, info.paused ? "Resume" : "Pause…");
      pause.className = info.paused ? "main writes" : "writes";
      // The version alone does not say it: a topic that was made again begins with the first one.
      const told = settings(info);
      const text = JSON.stringify(told.map((each) => each.map(({ textContent }) => textContent)));
      if (text !== shown) {
        shown = text;
        put(facts, told);
      }
    },
  };
}

function lead(view) {
  const told = state(view.topic);
  const minute = view.topic.next_minute;
  const next = view.ahead <= 3600 ? view.chart.due.find(([, due]) => due) : null;
  const soon = next ? `the next message falls due ${next[0] * 1000 - view.at < 1000 ? "now" : `in ${duration(next[0] - view.at / 1000)}`}`
    : minute ? `${count(minute, "message falls", "messages fall")} due within a minute` : "nothing falls due soon";
  return `A ${view.topic.kind} topic, ${told.text}: ${count(view.topic.partitions, "partition")}, ${count(view.topic.consumers, "consumer")}; ${soon}.${uncounted(view.topic.leaderless)}`;
}

/** Which of the chart's seconds are counted, and which only estimated. */
function exactness(view) {
  if (view.ahead > 3600) return "By the hour. Choose a bar (a click, or the arrow keys and Enter) to count its seconds.";
  if (view.exact === null || view.exact >= view.at + view.ahead * 1000) return "";
  const from = view.exact > view.at ? `From ${clock(view.exact)} on` : "Just now all";
  return `${from} seconds are estimated: of what waits so long only the sum of each hour is known. “Any second ahead” counts one by one.`;
}

function settings(info) {
  const rows = [
    ["Kind", info.kind],
    ["Copies", `${info.replicas}, of which ${info.min_isr} must have a message before it counts`],
    ["Longest payload", bytes(info.payload_bytes_max)],
    ["Horizon", info.horizon_s ? exactly(info.horizon_s) : "no cap"],
    ["Rate", info.rate ? `${number(info.rate)} a second, ${number(info.burst || Math.ceil(info.rate))} at once` : "no limit"],
    ["Paused", info.paused ? (info.paused_until ? timeElement(info.paused_until) : "until it is resumed") : "no"],
    ["Attempts", info.max_attempts ? `${number(info.max_attempts)}, then dead` : "as many as it takes"],
    ["Back-off", info.backoff ? backoff(info.backoff) : "none: what fails is delivered again at once"],
    ["Not delivered in time", info.expired === "dead" ? "dead" : "finished"],
    ["Dead ones are kept for", exactly(info.dead_retention_s)],
    ["Keys", info.keys === "unique" ? `unique${info.remember_s ? `, and taken for ${exactly(info.remember_s)} after a message is finished` : ""}` : "free"],
    ...Object.entries(info.labels).map(([name, value]) => [`Label ${visible(name)}`, visible(value.slice(0, 200))]),
    ["Version", String(info.settings_version)],
  ];
  return rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
}

const backoff = ({ first, factor, longest }) => `${exactly(first)}, each time ${number(factor)} times as long, ${exactly(longest)} at most`;

// ---------------------------------------------------------------- acts

function pausing(topic) {
  const until = h("input", { type: "datetime-local", step: 1 });
  return ask({
    title: `Pause ${topic}?`, text: "Messages are taken as before, and none is delivered.", confirm: "Pause",
    fields: [moment("Until", until, "Empty: until it is resumed.")],
    run: () => call("POST", path(topic, "pause"), until.value ? { until: iso(fromInput(until.value)) } : {}, "pause"),
  });
}

const resume = (topic) => act(() => call("POST", path(topic, "resume"), undefined, "resume"), `${topic} is resumed.`);

function purging(topic, info) {
  const title = `Cancel all that wait in ${topic}?`;
  const total = (info?.scheduled ?? 0) + (info?.ready ?? 0);
  let begun = null;
  return ask({
    title, confirm: "Cancel them", danger: true, word: "cancel",
    text: `${count(total, "message")} ${total === 1 ? "waits" : "wait"}. Those that consumers have stay.`,
    run: async () => {
      begun = await call("POST", path(topic, "purge"), { state: "waiting" }, "cancel all that wait");
    },
  }).then(async (done) => {
    if (done) await follow(topic, begun.name, "cancelled", total);
  });
}

function deleting(topic, info) {
  const total = info ? info.scheduled + info.ready + info.leased + info.dead : 0;
  return ask({
    title: `Delete ${topic}?`, word: topic, confirm: "Delete", danger: true,
    text: `The topic goes, and ${count(total, "message")} with it.`,
    run: () => call("DELETE", path(topic), undefined, "delete topic"),
  }).then((done) => done && location.assign("/"));
}

function changing(topic, info) {
  const input = (value, attributes) => h("input", { type: "number", min: 0, value, ...attributes });
  const length = (seconds) => h("input", { type: "text", autocomplete: "off", required: true, value: exactly(seconds ?? 0) });
  const fields = {
    rate: input(info.rate, { step: "any" }), burst: input(info.burst), partitions: input(info.partitions, { min: info.partitions }),
    payload_bytes_max: input(info.payload_bytes_max, { min: 1 }), horizon: length(info.horizon_s),
    max_attempts: input(info.max_attempts ?? 0), dead_retention: length(info.dead_retention_s),
    expired: h("select", {}, [["finish", "is finished"], ["dead", "is dead"]].map(([value, text]) => h("option", { value, selected: value === info.expired }, text))),
    ...(info.keys === "unique" ? { remember: length(info.remember_s) } : {}),
  };
  const steps = {
    first: length(info.backoff?.first), longest: length(info.backoff?.longest ?? 3600), factor: input(info.backoff?.factor ?? 2, { min: 1, step: "any" }),
  };
  const values = (some) => Object.fromEntries(Object.entries(some).map(([name, each]) => [name, each.type === "number" ? Number(each.value) : each.value.trim()]));
  const before = values(fields);
  const stepsBefore = JSON.stringify(values(steps));
  return ask({
    title: `Settings of ${topic}`, confirm: "Change",
    fields: h("div", { class: "form" },
      field("Rate, messages a second", fields.rate, "0: no limit. Only with one partition."), field("Burst", fields.burst, "0: as in a second."),
      field("Partitions", fields.partitions, "Never fewer."), field("Horizon", fields.horizon, "365d. 0s: no cap."),
      field("Longest payload, bytes", fields.payload_bytes_max), field("Attempts", fields.max_attempts, "0: as many as it takes."),
      field("First back-off", steps.first, "10s. How long a failed message waits."), field("Longest back-off", steps.longest, "1h."), field("Times, from one to the next", steps.factor),
      field("What is not delivered in time", fields.expired), field("Dead ones are kept for", fields.dead_retention, "14d."),
      fields.remember ? field("A key stays taken for", fields.remember, "1h, after its message is finished.") : null),
    run: async () => {
      const now = values(fields);
      const changed = Object.fromEntries(Object.entries(now).filter(([name, value]) => value !== before[name] && value !== ""));
      if (JSON.stringify(values(steps)) !== stepsBefore) changed.backoff = { ...info.backoff, ...values(steps) };
      if (Object.keys(changed).length) await call("PATCH", path(topic), changed, `change ${Object.keys(changed).join(", ")}`);
    },
  });
}

// ---------------------------------------------------------------- what else a topic has

/** Recurrences, groups and jobs: asked for when the page opens, and after each act. */
function loadLists(topic, place) {
  const shown = new Map();
  for (const list of LISTS) {
    const body = h("div", { tabindex: -1 });
    shown.set(list, section(list.title, body));
    const load = async (cursor = "") => {
      let page;
      try {
        page = await (list.read ? list.read(topic) : pageOf(list, topic, cursor));
      } catch {
        setTimeout(() => place.isConnected && load(cursor), AGAIN_MS); // the page itself says what is wrong
        return;
      }
      const rows = page[list.path];
      if (rows.length && !shown.get(list).isConnected) {
        place.append(...LISTS.map((each) => shown.get(each)).filter((each) => each === shown.get(list) || each.isConnected));
      }
      const made = table(list.title, list.columns(topic, () => load(cursor)), list.key, `No ${list.path}.`);
      made.update(rows);
      const held = body.contains(document.activeElement);
      put(body, made.element, page.cursor ? h("p", { class: "pager" },
        h("button", { type: "button", onclick: () => load(page.cursor) }, "Next")) : null);
      if (held) body.focus();
    };
    load();
  }
}

function pageOf(list, topic, cursor) {
  const query = list.paged ? `?${new URLSearchParams({ limit: PAGE, ...(cursor ? { cursor } : {}) })}` : "";
  return call("GET", path(topic, list.path) + query);
}

const buttons = (...made) => ({ node: h("span", { class: "acts writes" }, made), key: made.map((each) => each.textContent).join() + Math.random() });

function button(text, name, work, danger = false) {
  return h("button", { type: "button", class: danger ? "quiet danger" : "quiet", "aria-label": `${text} ${name}`, onclick: work }, text);
}

const at = (text) => (text ? { node: timeElement(said(text)), key: text } : null);

const endpoint = (name, verb = "") => `/v1/endpoints/${encodeURIComponent(name)}${verb}`;

const LISTS = [
  {
    title: "Endpoint", path: "endpoints", key: (row) => row.name,
    read: async (topic) => {
      const own = (await call("GET", "/v1/endpoints")).endpoints.filter((each) => each.topic === topic);
      return { endpoints: await Promise.all(own.map((each) => call("GET", endpoint(each.name)))) };
    },
    columns: (topic, again) => [
      { title: "Endpoint", heads: true, cell: (row) => row.name },
      { title: "To", cell: (row) => ({ key: row.url, node: h("span", { class: "wraps" }, row.url) }) },
      { title: "State", cell: (row) => (row.disabled ? { text: `disabled: ${row.disabled}`, pill: "bad wraps" } : row.paused ? { text: "paused", pill: "warn" } : { text: "in use", pill: "well" }) },
      { title: "Sent from here", number: true, cell: (row) => (row.here ? number(row.here.delivered) : null) },
      { title: "Failed from here", number: true, cell: (row) => (row.here?.failed ? { text: number(row.here.failed), pill: "warn" } : row.here ? "0" : null) },
      { title: "Last failure", cell: (row) => (row.here?.last_failure ? { key: row.here.last_failure,
        node: h("span", { class: "wraps" }, timeElement(Date.parse(row.here.last_failure)), " ", row.here.last_error.slice(0, 200)) } : null) },
      { title: "Acts", cell: (row) => {
        const verb = row.paused || row.disabled ? "resume" : "pause";
        return buttons(
          button("Test", row.name, () => act(() => call("POST", endpoint(row.name, "/test"), undefined, `test endpoint ${row.name}`),
            (found) => `${row.name} answered ${found.status || "nothing"} after ${duration(found.seconds)}${found.text ? `: ${found.text.slice(0, 200)}` : "."}`)),
          button(verb === "resume" ? "Resume" : "Pause", row.name, () => act(() => call("POST", endpoint(row.name, `/${verb}`), undefined, `${verb} endpoint ${row.name}`), "Done.").then(() => again())),
          button("Reload", row.name, () => again()));
      } },
    ],
  },
  {
    title: "Recurrences", path: "recurrences", paged: true, key: (row) => row.name,
    columns: (topic, again) => [
      { title: "Recurrence", heads: true, cell: (row) => visible(row.name) },
      { title: "When", cell: (row) => row.cron ? `${row.cron}${row.zone ? ` (${row.zone})` : ""}` : row.every_seconds ? `every ${exactly(row.every_seconds)}` : count(row.at.length, "instant") },
      { title: "State", cell: (row) => (row.paused ? { text: "paused", pill: "warn" } : { text: "at work", pill: "well" }) },
      { title: "Next", cell: (row) => at(row.next) },
      { title: "Messages", number: true, cell: (row) => number(row.messages) },
      { title: "Acts", cell: (row) => {
        const own = (verb) => path(topic, "recurrences", row.name, verb);
        const verb = row.paused ? "resume" : "pause";
        return buttons(
          button("Trigger", row.name, () => act(() => call("POST", own("trigger"), undefined, `trigger recurrence ${row.name}`), `${visible(row.name)} has made a message.`).then(() => again())),
          button(row.paused ? "Resume" : "Pause", row.name, () => act(() => call("POST", own(verb), undefined, `${verb} recurrence ${row.name}`), "Done.").then(() => again())),
          button("Delete…", row.name, () => ask({ title: `Delete ${visible(row.name)}?`, word: row.name, confirm: "Delete", danger: true,
            run: () => call("DELETE", path(topic, "recurrences", row.name), undefined, `delete recurrence ${row.name}`) }).then((done) => done && again()), true));
      } },
    ],
  },
  {
    title: "Groups", path: "groups", paged: true, key: (row) => row.name,
    columns: (topic, again) => [
      { title: "Group", heads: true, cell: (row) => visible(row.name) || "(none)" },
      { title: "State", cell: (row) => (row.paused ? { text: "paused", pill: "warn" } : { text: "serving", pill: "well" }) },
      { title: "Messages", number: true, cell: (row) => number(row.messages) },
      { title: "Weight", number: true, cell: (row) => number(row.weight) },
      { title: "At once", number: true, cell: (row) => (row.max_unacked ? number(row.max_unacked) : "no limit") },
      { title: "Acts", cell: (row) => (row.name ? buttons(button(row.paused ? "Resume" : "Pause", row.name,
        () => act(() => call("PUT", path(topic, "groups", row.name), { paused: !row.paused }, `${row.paused ? "resume" : "pause"} group ${row.name}`), "Done.").then(() => again()))) : null) },
    ],
  },
  {
    title: "Jobs", path: "jobs", paged: false, key: (row) => row.key,
    columns: (topic, again) => [
      { title: "Job", heads: true, cell: (row) => ({ text: row.name ?? row.key, href: `/messages?${new URLSearchParams({ topic, job: row.key })}` }) },
      { title: "State", cell: (row) => ({ text: row.state, pill: row.state === "open" ? "note" : "well" }) },
      { title: "Left", number: true, cell: (row) => number(row.messages) },
      { title: "Until", cell: (row) => at(row.until) },
      { title: "Acts", cell: (row) => (row.messages && row.state === "committed" ? buttons(button("Cancel…", row.key, () => ask({
        title: "Cancel this job?", word: "cancel", confirm: "Cancel it", danger: true, text: `${count(row.messages, "message")} that no consumer has ${row.messages === 1 ? "is" : "are"} taken back.`,
        run: () => call("POST", path(topic, "jobs", row.key, "cancel"), undefined, `cancel job ${row.key}`) }).then((done) => done && again()), true)) : null) },
    ],
  },
];

const CONSUMERS = [
  { title: "Consumer", heads: true, cell: (row) => ({ text: row.consumer.slice(0, 12), title: row.consumer }) },
  { title: "Messages it has", number: true, cell: (row) => number(row.leased) },
  { title: "May have", number: true, cell: (row) => number(row.credit) },
  { title: "With brokers", cell: (row) => row.brokers.join(", ") },
  { title: "Heard", number: true, cell: (row) => `${duration(Math.floor(row.heard_ms / 1000))} ago` },
];

const PARTITIONS = [
  { title: "Partition", heads: true, cell: (row) => String(row.index) },
  { title: "Leader", cell: (row) => (row.serving ? row.leader : { text: "none", pill: "bad" }) },
  { title: "In sync", cell: (row) => (row.isr.length < row.replicas.length
    ? { text: `${row.isr.join(", ") || "none"} of ${row.replicas.join(", ")}`, pill: "warn" } : row.isr.join(", ")) },
  { title: "Lag", number: true, cell: (row) => ({ text: number(row.lag), title: "records that the furthest copy lacks" }) },
  { title: "Scheduled", number: true, cell: (row) => number(row.scheduled) },
  { title: "Due", number: true, cell: (row) => number(row.ready) },
  { title: "With consumers", number: true, cell: (row) => number(row.leased) },
  { title: "Dead", number: true, cell: (row) => number(row.dead) },
];
