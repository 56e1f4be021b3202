// What is wrong, first and in words, with the next step.

import { h, put, say } from "./dom.js";
import { count, timeElement } from "./words.js";

const WORDS = { bad: "Broken", warn: "Watch", note: "Note" };
const NUMBERS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine"];

/** `update(alarms, well)` shows what is wrong; `well` is said when nothing is. */
export function trouble() {
  const headline = h("h1");
  const sentence = h("p", { class: "lead" });
  const list = h("ul", { class: "alarms" });
  const more = h("p", { class: "faint" });
  const element = h("div", { class: "trouble" }, headline, sentence, list, more);
  const items = new Map();

  function update(alarms, well, lead) {
    const { serious } = alarms;
    say(headline, serious === 0 ? well : `${NUMBERS[serious] ?? serious} ${serious === 1 ? "thing needs" : "things need"} you.`);
    headline.className = alarms.shown.some((alarm) => alarm.level === "bad") ? "bad" : serious ? "warn" : "well";
    say(sentence, lead);
    const seen = new Set();
    let place = list.firstElementChild;
    for (const alarm of alarms.shown) {
      seen.add(alarm.key);
      let item = items.get(alarm.key);
      if (!item) {
        item = made();
        items.set(alarm.key, item);
      }
      if (item.element === place) place = place.nextElementSibling;
      else list.insertBefore(item.element, place);
      item.set(alarm);
    }
    for (const [key, item] of items) {
      if (!seen.has(key)) {
        item.element.remove();
        items.delete(key);
      }
    }
    list.hidden = alarms.shown.length === 0;
    say(more, alarms.more ? `And ${count(alarms.more, "more")}.` : "");
  }
  return { element, update };
}

function made() {
  const level = h("span", { class: "level" });
  const what = h("p", { class: "what" });
  const end = h("span");
  const next = h("span");
  const link = h("a", {});
  const element = h("li", {}, level, h("div", {}, what, h("p", { class: "next" }, end, next, " ", link)));
  return {
    element,
    set(alarm) {
      element.className = `alarm ${alarm.level}`;
      say(level, WORDS[alarm.level]);
      say(what, alarm.what);
      say(next, alarm.next);
      if (end.dataset.until !== String(alarm.until)) {
        end.dataset.until = alarm.until;
        put(end, alarm.until ? ["It ends by itself at ", timeElement(alarm.until), ". "] : []);
      }
      const own = new URLSearchParams({ topic: alarm.topic });
      link.hidden = !alarm.topic || (location.pathname === "/topic" && !alarm.dead);
      const href = alarm.dead ? `/messages?${own}&state=dead` : `/topic?${own}`;
      if (link.getAttribute("href") !== href) link.setAttribute("href", href);
      say(link, alarm.dead ? "Dead messages" : `Topic ${alarm.topic}`);
    },
  };
}

/** A row of great numbers; `update([{title, value, href, level, detail}])`. */
export function figures() {
  const element = h("dl", { class: "figures" });
  return {
    element,
    update(items) {
      if (element.childElementCount !== items.length) {
        put(element, items.map(() => h("div", {}, h("dt"), h("dd"))));
      }
      items.forEach((item, index) => {
        const place = element.children[index];
        place.className = item.level ?? "";
        const title = place.firstElementChild;
        if (item.href) {
          if (!title.firstElementChild) put(title, h("a", { href: item.href }, item.title));
          title.firstElementChild.setAttribute("href", item.href);
        } else {
          say(title, item.title);
        }
        const value = place.lastElementChild;
        const text = JSON.stringify([item.value, item.detail]);
        if (value.dataset.shown !== text) {
          value.dataset.shown = text;
          put(value, item.value, item.detail ? h("small", {}, item.detail) : null);
        }
      });
    },
  };
}
