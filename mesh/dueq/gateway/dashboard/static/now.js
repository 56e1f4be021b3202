// Now and next: whether it goes out, what is due, how late it is, who serves.

import { chart } from "./chart.js";
import { field, h, say, section, table } from "./dom.js";
import { figures, trouble } from "./trouble.js";
import { clock, count, duration, milliseconds, number, timeElement, uncounted } from "./words.js";

const PAST_S = 300;
const AHEAD_S = 300;

const topicLink = (name) => `/topic?${new URLSearchParams({ topic: name })}`;

export function show(frame) {
  const wrong = trouble();
  const totals = figures();
  const drawing = chart("Messages a second, five minutes back and five ahead");
  const partly = h("p", { class: "faint" });
  const late = figures();
  const untold = h("span");
  const topics = table("Topics", TOPIC_COLUMNS, (row) => row.name, untold);
  const brokers = table("Brokers", BROKER_COLUMNS, (row) => row.id, "No broker is known.");
  const acts = table("Acts", ACT_COLUMNS, (row) => row.number, "Nothing was done from the dashboard of this gateway since it was started.");
  const search = h("input", { type: "search", value: frame.parameters.get("search") ?? "", autocomplete: "off", spellcheck: "false" });
  const sort = h("select", {}, [["trouble", "trouble first"], ["name", "name"], ["scheduled", "most scheduled"],
    ["ready", "most due"], ["leased", "most with consumers"], ["dead", "most dead"]]
    .map(([value, text]) => h("option", { value, selected: value === frame.parameters.get("sort") }, text)));
  const found = h("p", { class: "faint", role: "status" });
  const earlier = h("button", { type: "button", hidden: true, onclick: () => page(-1) }, "Previous");
  const later = h("button", { type: "button", hidden: true, onclick: () => page(1) }, "Next");
  let skip = 0;
  let rows = 50;

  function wanted() {
    return { search: search.value, sort: sort.value, skip };
  }
  function ask() {
    frame.address({ search: search.value, sort: sort.value === "trouble" ? "" : sort.value });
    frame.live.open(wanted());
  }
  function page(step) {
    skip = Math.max(skip + step * rows, 0);
    ask();
  }
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      skip = 0;
      ask();
    }, 250);
  });
  sort.addEventListener("change", () => {
    skip = 0;
    ask();
  });

  const element = h("div", { class: "page" },
    wrong.element,
    section("Now and next", totals.element, drawing.element, partly),
    section("How late, in the last minute", late.element),
    section("Topics",
      h("div", { class: "tools" }, field("Find a topic", search), field("Order", sort), found),
      topics.element, h("div", { class: "pager" }, earlier, later)),
    section("Brokers", brokers.element),
    section("Done from here", acts.element));

  return {
    title: "Now",
    element,
    live: wanted(),
    update(view) {
      const sums = view.totals;
      wrong.update(view.alarms, "All is well.", lead(view));
      totals.update([
        { title: "scheduled", value: number(sums.scheduled) },
        { title: "due, waiting", value: number(sums.ready), level: sums.ready ? "warn" : "" },
        { title: "with consumers", value: number(sums.leased), detail: count(sums.consumers, "consumer") },
        { title: "dead", value: number(sums.dead), level: sums.dead ? "warn" : "" },
      ]);
      drawing.update({ ...view.chart, at: view.at, past: PAST_S, ahead: AHEAD_S, step: 1, exact: view.exact });
      say(partly, [
        view.partly ? "Beyond one minute the chart has the sixteen fullest topics." : "",
        view.exact && view.exact < view.at + AHEAD_S * 1000
          ? `From ${clock(view.exact)} on seconds are estimated: of some topics only the sum of each hour is known. A topic's page counts any second.` : "",
      ].filter(Boolean).join(" "));
      late.update(lateness(view.lateness));
      topics.update(view.topics);
      say(untold, sums.topics ? "No topic has this in its name." : view.fault ? "Nothing is known of topics just now." : "There is no topic yet.");
      rows = Math.max(view.topics.length, 50);
      if (skip && !view.topics.length) page(-1); // there are fewer by now
      say(found, view.found > view.topics.length
        ? `${number(skip + 1)} to ${number(skip + view.topics.length)} of ${number(view.found)}` : count(view.found, "topic"));
      earlier.hidden = skip === 0;
      later.hidden = skip + view.topics.length >= view.found;
      brokers.update(view.brokers);
      acts.update(view.acts);
    },
  };
}

export function lateness(late) {
  if (!late.count) return [{ title: "first deliveries", value: "none" }];
  return [
    { title: "half within", value: milliseconds(late.half) },
    { title: "99 % within", value: milliseconds(late.most) },
    { title: "all within", value: milliseconds(late.worst) },
    { title: "first deliveries", value: number(late.count) },
  ];
}

function lead(view) {
  const sums = view.totals;
  if (view.fault) return view.seen ? `What is below was so at ${clock(view.seen)}.` : "";
  if (!sums.topics) return `${count(sums.alive, "broker")} ${sums.alive === 1 ? "answers" : "answer"}, and there is no topic yet. Create one to begin.`;
  const next = view.chart.due.find(([, due]) => due);
  const soon = next ? `the next falls due ${next[0] * 1000 - view.at < 1000 ? "now" : `in ${duration(next[0] - view.at / 1000)}`}`
    : sums.scheduled ? "none falls due within five minutes" : "none waits";
  return `${count(sums.alive, "broker")} ${sums.alive === 1 ? "serves" : "serve"} ${count(sums.partitions - sums.leaderless, "partition")} of ` +
    `${count(sums.topics, "topic")}.${uncounted(sums.leaderless)} ${count(sums.scheduled, "message")} ${sums.scheduled === 1 ? "is" : "are"} scheduled; ${soon}.`;
}

const TOPIC_COLUMNS = [
  { title: "Topic", heads: true, cell: (row) => ({ text: row.name, href: topicLink(row.name) }) },
  { title: "State", cell: (row) => state(row) },
  { title: "Scheduled", number: true, cell: (row) => number(row.scheduled) },
  { title: "In a minute", number: true, cell: (row) => number(row.next_minute) },
  { title: "Due", number: true, cell: (row) => (row.ready ? { text: number(row.ready), pill: "warn" } : "0") },
  { title: "With consumers", number: true, cell: (row) => number(row.leased) },
  { title: "Dead", number: true, cell: (row) => (row.dead
    ? { text: number(row.dead), pill: "warn", href: `/messages?${new URLSearchParams({ topic: row.name })}&state=dead` } : "0") },
  { title: "Consumers", number: true, cell: (row) => number(row.consumers) },
];

/** A topic's state, in a word. */
export function state(row) {
  if (row.leaderless) return { text: `${number(row.leaderless)} without leader`, pill: "bad" };
  if (row.paused) return { text: "paused", pill: "warn" };
  if (row.behind) return { text: `${number(row.behind)} catching up`, pill: "note" };
  return { text: "serving", pill: "well" };
}

const BROKER_COLUMNS = [
  { title: "Broker", heads: true, cell: (row) => row.id },
  { title: "State", cell: (row) => (row.alive ? { text: "answers", pill: "well" } : { text: "does not answer", pill: "bad" }) },
  { title: "Leads", number: true, cell: (row) => (row.alive ? number(row.leads) : null) },
  { title: "Holds", number: true, cell: (row) => (row.alive ? number(row.holds) : null) },
  { title: "Behind", number: true, cell: (row) => (row.behind ? { text: number(row.behind), pill: "warn", title: "replicas that are not in sync" } : "0") },
  { title: "Clock", number: true, cell: (row) => (row.offset_ms === null || row.offset_ms === undefined ? null
    : `${row.offset_ms >= 0 ? "+" : "−"}${Math.abs(row.offset_ms).toFixed(1)} ms`) },
  { title: "Up for", number: true, cell: (row) => (row.alive && row.uptime_s !== null ? duration(row.uptime_s) : null) },
  { title: "Address", cell: (row) => row.endpoint },
];

const ACT_COLUMNS = [
  { title: "When", cell: (row) => ({ node: timeElement(row.at), key: row.at }) },
  { title: "What", heads: true, cell: (row) => row.act },
  { title: "Topic", cell: (row) => (row.topic ? { text: row.topic, href: topicLink(row.topic) } : null) },
  { title: "Outcome", cell: (row) => (row.status < 400 ? { text: "done", pill: "well" } : { text: `refused (${row.status})`, pill: "bad" }) },
  { title: "By", cell: (row) => row.by },
];
