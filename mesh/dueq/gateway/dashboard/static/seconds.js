// What falls due in an interval of one's choice, by the second: messages are counted one by one.

import { call, Refused } from "./acts.js";
import { chart } from "./chart.js";
import { field, h, say, section } from "./dom.js";
import { moment } from "./moments.js";
import { count, fromInput, instant, number, toInput } from "./words.js";

const LENGTHS = { 60: "one minute", 600: "ten minutes", 3600: "one hour" };

/** `open(ms, seconds)` counts what is due from an instant on. */
export function seconds(topic) {
  const from = h("input", { type: "datetime-local", step: 1, required: true });
  const length = h("select", {}, Object.entries(LENGTHS).map(([value, text]) => h("option", { value, selected: value === "3600" }, text)));
  const go = h("button", { type: "submit" }, "Count");
  const told = h("p", { class: "faint", role: "status" });
  const refused = h("p", { class: "refused", role: "alert" });
  const drawing = chart(`Messages a second of ${topic}, counted`);
  drawing.element.hidden = true;
  const form = h("form", { class: "tools" }, moment("From", from), field("For", length), go);
  const element = section("Any second ahead", form, told, refused, drawing.element);

  let asked = 0;

  async function ask(begin, wanted) {
    asked += 1;
    const mine = asked;
    // What was asked for before may be answered later: only the last answer is shown.
    const last = () => mine === asked;
    say(refused, "");
    say(told, "Counting…");
    go.disabled = true;
    try {
      const query = new URLSearchParams({ topic, from: begin, seconds: wanted });
      const found = await call("GET", `/dashboard/seconds?${query}`);
      if (!last()) return;
      const total = found.due.reduce((sum, [, value]) => sum + value, 0);
      say(told, `${count(total, "message waits", "messages wait")} until a second from ${instant(begin)} to ${instant(begin + wanted * 1000)}.` +
        (found.complete ? "" : ` There are more: only the first ${number(found.most)} or so were counted. Choose a shorter time.`));
      drawing.element.hidden = false;
      drawing.update({ at: begin, since: 0, delivered: [], due: found.due, past: 0, ahead: wanted, step: 1, chosen: true });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (!last()) return;
      say(told, "");
      say(refused, error.message);
    } finally {
      if (last()) go.disabled = false;
    }
  }

  function set(ms) {
    from.value = toInput(ms);
    from.dispatchEvent(new Event("input"));
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const begin = fromInput(from.value);
    if (begin !== null) ask(begin, Number(length.value));
  });
  return {
    element,
    /** Have an interval ready to be counted. */
    suggest(ms) {
      if (!from.value) set(Math.floor(ms / 3_600_000) * 3_600_000);
    },
    open(ms, wanted) {
      set(ms);
      length.value = String(wanted);
      element.scrollIntoView({ block: "nearest" });
      ask(ms, wanted);
    },
  };
}
