// Messages a second around now: what was delivered, and what is due. The axis is logarithmic: one message and a million
// in one second are both to be seen.

import { fresh, h, put, say, svg } from "./dom.js";
import { clock, count, day, duration, inUtc, iso, minute, number, onZone, short } from "./words.js";

const HEIGHT = 220;
const MARGIN = { top: 20, right: 12, bottom: 24, left: 44 };
const BAR_PX = 3;
const STEPS = [1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800];

/**
 * A chart; `update({at, since, delivered, due, past, ahead, step, exact, chosen})` draws it. Instants are Unix s but `at`,
 * `since` and `exact` (ms). `exact`: later seconds are estimated. `chosen`: `at` is not now, but where somebody wants to look. `onPick(bar)` is told which bar was chosen.
 */
export function chart(title, onPick = null) {
  const hatch = fresh("hatch");
  const drawing = svg("svg", { class: "chart", height: HEIGHT, role: "img", tabindex: 0 });
  const readout = h("p", { class: "readout" });
  const unit = h("span", { class: "faint" });
  const known = h("span", { class: "key delivered" }, "delivered");
  const guessed = h("span", { class: "key due guess", hidden: true }, "due, estimated");
  const legend = h("p", { class: "legend" },
    known, h("span", { class: "key due" }, "due"), guessed,
    unit);
  const element = h("figure", { class: "figure" }, legend, drawing, readout);
  let data = null;
  let bars = [];
  let cursor = null;

  function draw() {
    const width = Math.max(drawing.parentElement?.clientWidth ?? 0, 280);
    if (!data) return;
    drawing.setAttribute("width", width);
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const now = data.at / 1000;
    const begin = now - data.past;
    const end = now + data.ahead;
    const inner = width - MARGIN.left - MARGIN.right;
    const x = (second) => MARGIN.left + ((second - begin) / (end - begin)) * inner;
    const step = STEPS.find((each) => Math.max(each, data.step) >= ((end - begin) * BAR_PX) / inner) ?? STEPS.at(-1);
    const bin = Math.max(step, data.step);
    bars = [...binned(data.delivered, bin, "delivered", begin, end), ...binned(data.due, bin, "due", begin, end)];
    const top = Math.max(10, ...bars.map((bar) => bar.most));
    const floor = HEIGHT - MARGIN.bottom;
    const y = (value) => floor - (Math.log10(1 + value) / Math.log10(1 + top)) * (floor - MARGIN.top);
    const barWidth = Math.max((bin / (end - begin)) * inner - 1, 1.5);

    const parts = [svg("defs", {}, svg("pattern", { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse",
      patternTransform: "rotate(45)" }, svg("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch" })))];
    for (let value = 1; value <= top; value *= 10) {
      parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
        svg("text", { class: "axis", x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, short(value)));
    }
    const unknown = Math.min(Math.max(x((data.since || data.at) / 1000), MARGIN.left), x(now));
    if (unknown > MARGIN.left + 1) {
      parts.push(svg("rect", { x: MARGIN.left, y: MARGIN.top, width: unknown - MARGIN.left, height: floor - MARGIN.top,
        fill: `url(#${hatch})` }));
      if (unknown - MARGIN.left > 130) {
        parts.push(svg("text", { class: "axis", x: MARGIN.left + 8, y: MARGIN.top + 14 }, "before you looked"));
      }
    }
    for (const [at, text] of ticks(begin, end, inner)) {
      parts.push(svg("line", { class: "tick", x1: x(at), x2: x(at), y1: floor, y2: floor + 4 }),
        svg("text", { class: "axis", x: x(at), y: HEIGHT - 6, "text-anchor": "middle" }, text));
    }
    for (const bar of bars) {
      bar.x = Math.max(x(bar.at), MARGIN.left);
      parts.push(svg("rect", { class: `column ${bar.kind}${isGuess(bar) ? " guess" : ""}`, x: bar.x, y: y(bar.most), width: barWidth,
        height: Math.max(floor - y(bar.most), 1.5) }));
    }
    parts.push(svg("line", { class: "grid base", x1: MARGIN.left, x2: width - MARGIN.right, y1: floor, y2: floor }),
      data.chosen ? null : svg("line", { class: "now", x1: x(now), x2: x(now), y1: MARGIN.top - 4, y2: floor }));
    if (data.past) parts.push(svg("text", { class: "axis strong", x: x(now), y: MARGIN.top - 8, "text-anchor": "middle" }, "now"));
    if (cursor !== null && bars[cursor]) {
      parts.push(svg("line", { class: "cursor", x1: bars[cursor].x + barWidth / 2, x2: bars[cursor].x + barWidth / 2,
        y1: MARGIN.top, y2: floor }));
    }
    put(drawing, parts);
    tell();
  }

  const isGuess = (bar) => bar.kind === "due" && data.exact && (bar.at + bar.span) * 1000 > data.exact;

  function tell() {
    guessed.hidden = !bars.some(isGuess);
    const summary = summarised(data);
    known.hidden = !data.past;
    say(unit, `messages ${data.step > 1 ? "an hour" : "a second"}, logarithmic`);
    const picks = onPick && data.step > 1 ? " Enter counts a bar by the second." : "";
    drawing.setAttribute("aria-label", `${title}. ${summary} The arrow keys go from bar to bar.${picks}`);
    drawing.classList.toggle("picks", Boolean(picks));
    const bar = cursor === null ? null : bars[cursor];
    say(readout, bar
      ? `${when(bar.at, data)}: ${isGuess(bar) ? "about " : ""}${count(Math.round(bar.sum * 100) / 100, "message")} ${bar.kind}` +
        (bar.span > data.step ? ` in ${duration(bar.span)}, at most ${number(bar.most)} in one ${one(data)}` : "")
      : summary);
    readout.title = bar ? iso(bar.at * 1000) : "";
  }

  function go(place) {
    cursor = bars.length ? Math.min(Math.max(place, 0), bars.length - 1) : null;
    draw();
  }

  function pick(event) {
    if (!onPick || data.step === 1 || cursor === null || !bars[cursor]) return;
    event.preventDefault();
    onPick(bars[cursor]);
  }

  drawing.addEventListener("click", pick);
  drawing.addEventListener("keydown", (event) => {
    const nowAt = bars.findIndex((bar) => bar.kind === "due");
    const from = cursor ?? (nowAt < 0 ? bars.length : nowAt) - 1;
    const moves = { ArrowRight: from + 1, ArrowLeft: cursor === null ? from : from - 1, Home: 0, End: bars.length - 1 };
    if (event.key in moves) {
      event.preventDefault();
      go(moves[event.key]);
    } else if (event.key === "Enter" || event.key === " ") {
      pick(event);
    } else if (event.key === "Escape") {
      cursor = null;
      draw();
    }
  });
  drawing.addEventListener("pointermove", (event) => {
    const at = event.clientX - drawing.getBoundingClientRect().left;
    let best = null;
    bars.forEach((bar, index) => {
      if (best === null || Math.abs(bar.x - at) < Math.abs(bars[best].x - at)) best = index;
    });
    if (best !== null && best !== cursor) go(best);
  });
  drawing.addEventListener("pointerleave", () => {
    cursor = null;
    if (data) draw();
  });
  new ResizeObserver(() => draw()).observe(element);
  onZone(draw);

  return {
    element,
    update(next) {
      data = next;
      if (cursor !== null && document.activeElement !== drawing && !drawing.matches(":hover")) cursor = null;
      draw();
    },
  };
}

/** Bars of so many seconds: what is highest in one of their seconds, and the sum. */
function binned(seconds, bin, kind, begin, end) {
  const found = new Map();
  for (const [at, value] of seconds) {
    if (at + bin <= begin || at > end) continue;
    const place = Math.floor(at / bin) * bin;
    const bar = found.get(place) ?? { at: place, most: 0, sum: 0, kind, span: bin };
    bar.most = Math.max(bar.most, value);
    bar.sum += value;
    found.set(place, bar);
  }
  return [...found.values()].sort((one, other) => one.at - other.at);
}

function ticks(begin, end, inner) {
  const wanted = ((end - begin) * 70) / inner;
  const step = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000]
    .find((each) => each >= wanted) ?? 31_536_000;
  // Full hours and days of the zone that times are shown in; its clocks may change on the way.
  const shift = (second) => (inUtc() ? 0 : new Date(second * 1000).getTimezoneOffset() * 60);
  const found = [];
  for (let local = Math.ceil((begin - shift(begin)) / step) * step; ; local += step) {
    const at = local + shift(local + shift(local));
    if (at > end) break;
    found.push([at, step < 60 ? clock(at * 1000) : step < 86_400 ? minute(at * 1000) : day(at * 1000)]);
  }
  return found.filter(([at]) => at > begin + (end - begin) * 0.03 && at < end - (end - begin) * 0.03);
}

const when = (at, data) => (data.step >= 3600 ? `${day(at * 1000)} ${minute(at * 1000)}` : clock(at * 1000));

const one = (data) => (data.step > 1 ? "hour" : "second");

function summarised(data) {
  if (data.chosen) return inChosen(data);
  const minuteAgo = data.at / 1000 - 60;
  const delivered = data.delivered.filter(([at]) => at >= minuteAgo).reduce((sum, [, value]) => sum + value, 0);
  const known = data.due.filter(([at]) => !data.exact || (at + 1) * 1000 <= data.exact);
  const peak = known.reduce((best, each) => (!best || each[1] > best[1] ? each : best), null);
  const past = data.past ? `${count(Math.round(delivered), "message")} delivered in the last minute. ` : "";
  const until = known.length < data.due.length ? ` until ${clock(data.exact)}` : "";
  if (!peak) return `${past}Nothing is due${until || ` in the next ${duration(data.ahead)}`}.`;
  const left = peak[0] - data.at / 1000;
  return `${past}Busiest ${one(data)} ahead${until}: ${number(peak[1])} at ${when(peak[0], data)}` +
    `${left > 1 ? `, in ${duration(left)}` : ", now"}.`;
}

function inChosen(data) {
  const peak = data.due.reduce((best, each) => (!best || each[1] > best[1] ? each : best), null);
  return peak ? `Busiest second: ${number(peak[1])} at ${clock(peak[0] * 1000)}.` : "Nothing waits until one of these seconds.";
}
