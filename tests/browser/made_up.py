"""What a page meets that a real gateway seldom does: scripts that run before its own."""

FIRST_LIST_IS_LATE = """
const own = window.fetch;
let first = true;
window.fetch = async (address, ...rest) => {
  const answer = await own(address, ...rest);
  if (first && address.startsWith("/dashboard/messages")) {
    first = false;
    await new Promise((release) => { window.release = release; });
  }
  return answer;
};
"""
FIRST_COUNT_IS_LATE = FIRST_LIST_IS_LATE.replace("/dashboard/messages", "/dashboard/seconds")
FIRST_LIST_FAILS = """
const own = window.fetch;
let first = true;
window.fetch = async (address, ...rest) => {
  if (!first || !address.startsWith("/dashboard/messages")) return own(address, ...rest);
  first = false;
  throw new TypeError("Failed to fetch");
};
"""
A_DAY_GOES_BY = """
const own = Date.now;
window.slept = 0;
Date.now = () => own() + slept;
"""
WORK_TAKES_LONG = """
const own = window.fetch;
let stopped;
window.looked = 0;
const stop = new Promise((resolve) => { stopped = resolve; });
window.fetch = async (address, options) => {
  const answer = await own(address, options);
  if (!address.includes("/passes/")) return answer;
  if (options.method === "DELETE") {
    setTimeout(stopped, 50);
    return answer;
  }
  window.looked += 1;
  const late = window.looked > 1;
  if (late) await stop;
  const found = Response.json({ ...await answer.json(), done: 2, ended: false });
  if (late) setTimeout(() => { window.saidLate = true; }, 50);
  return found;
};
"""
"""What is said of the work after the first look is said after it was stopped."""
FIRST_STREAM_IS_DEAD = """
const Own = window.EventSource;
const now = performance.now.bind(performance);
let slept = 0;
window.streams = 0;
performance.now = () => now() + slept;
window.EventSource = class {
  static CLOSED = 2;
  constructor(address) {
    window.streams += 1;
    if (window.streams > 1) return new Own(address);
    setTimeout(() => { slept = 3_600_000; }, 10);
    return Object.assign(new EventTarget(), { close() {}, readyState: 1 });
  }
};
"""
NO_STREAM = """
window.EventSource = class extends EventTarget {
  static CLOSED = 2;
  close() {}
  readyState = 1;
};
"""
A_HUNDRED_AND_TWENTY_TOPICS = """
window.gone = 0;
const counts = { scheduled: 1, ready: 0, leased: 0, dead: 0, consumers: 0, leaderless: 0 };
const rest = { alarms: { shown: [], more: 0, serious: 0 }, lateness: { count: 0 }, exact: null, brokers: [], acts: [],
  totals: { ...counts, topics: 120, partitions: 120, leaderless: 3, alive: 1, brokers: 1 },
  chart: { since: 0, delivered: {}, due: {} }, at: Date.now(), seen: 1, fault: "" };
window.EventSource = class extends EventTarget {
  static CLOSED = 2;
  constructor(address) {
    super();
    const skip = Number(new URL(address, location).searchParams.get("skip"));
    const all = [...Array(120 - gone).keys()].map((number) => ({ ...counts, name: `topic-${number}`, next_minute: 0 }));
    const data = JSON.stringify({ ...rest, found: all.length, topics: all.slice(skip, skip + 50) });
    setTimeout(() => this.dispatchEvent(new MessageEvent("view", { data })), 20);
  }
  close() {}
  readyState = 1;
};
"""
