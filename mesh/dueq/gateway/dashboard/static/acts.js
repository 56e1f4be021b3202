// What a person does from here: requests, questions before what cannot be undone, progress, and what came of it.

import { field, fresh, h, put, say } from "./dom.js";
import { count, number, visible } from "./words.js";

const POLL_MS = 700;

export const path = (topic, ...parts) =>
  ["/v1/topics", encodeURIComponent(topic), ...parts.map(encodeURIComponent)].join("/");

/** A request that was refused: its message is the gateway's sentence. */
export class Refused extends Error {
  constructor(problem, status) {
    super((problem.detail ?? `The gateway answered ${status}.`).replace(/^body\./, ""));
    this.problem = problem;
    this.status = status;
  }
}

/** Send a request, and return what was answered. `act` says in words what is done; reading has none. */
export async function call(method, address, body, act) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  if (act) headers["x-dueq-act"] = encodeURIComponent(act).slice(0, 600);
  let answer;
  try {
    answer = await fetch(address, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    const unsure = method === "GET" ? "" : " Whether it was done is not known: look before you repeat it.";
    throw new Refused({ detail: `The gateway does not answer.${unsure}` }, 0);
  }
  const text = await answer.text();
  let document = null;
  try {
    document = text ? JSON.parse(text) : null;
  } catch { /* no JSON */ }
  if (!answer.ok) throw new Refused(document ?? {}, answer.status);
  return document;
}

/** Say what came of something, for a while. */
export function toast(text, bad = false) {
  const element = h("div", { class: bad ? "toast bad" : "toast" }, text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), bad ? 12_000 : 5000);
}

/** Do something at once, and say what came of it. */
export async function act(work, done) {
  try {
    const answer = await work();
    toast(typeof done === "function" ? done(answer) : done);
    return true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    toast(error.message, true);
    return false;
  }
}

/**
 * Ask before something is done. Resolves to true once it was done.
 *
 * title, text; fields: elements of the form; word: what must be typed, as it is seen; confirm: the button; danger;
 * run(): does it.
 */
export function ask({ title, text, fields = [], word = "", confirm, danger = false, run }) {
  return new Promise((resolve) => {
    const heading = fresh("asked");
    const wanted = visible(word).trim();
    const refused = h("p", { class: "refused", role: "alert" });
    const typed = word ? h("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off" }) : null;
    const go = h("button", { type: "submit", class: danger ? "main danger" : "main", disabled: Boolean(word) }, confirm);
    const form = h("form", { method: "dialog" },
      h("h2", { id: heading }, title), text ? h("p", {}, text) : null, fields,
      typed ? field(`This cannot be undone. Type ${wanted} to go on`, typed) : null, refused,
      h("div", { class: "acts" }, h("button", { type: "button", onclick: () => dialog.close() }, "Back"), go));
    const dialog = h("dialog", { "aria-labelledby": heading }, form);
    let done = false;
    typed?.addEventListener("input", () => {
      go.disabled = typed.value.trim() !== wanted;
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      say(refused, "");
      try {
        await run();
        done = true;
        dialog.close();
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        say(refused, error.message);
        go.disabled = false;
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(done);
    });
    document.body.append(dialog);
    dialog.showModal();
    (typed ?? form.querySelector("input, select, textarea") ?? go).focus();
  });
}

const REASONS = {
  leased: "a consumer has them", horizon: "too far ahead for the topic", expiry: "they would have expired",
  changed: "changed meanwhile", dead: "dead", not_found: "gone already", unknown: "unknown: look again", taken: "their key is taken",
  stale: "the lease was over already",
};

export const reasons = (skipped) => Object.entries(skipped)
  .map(([reason, value]) => `${number(value)} left alone (${REASONS[reason] ?? reason})`).join(", ");

/** Follow work on many messages, in a dialog with a stop; resolves when it is closed. */
export function follow(topic, name, verb, total) {
  return new Promise((resolve) => {
    const heading = fresh("work");
    const title = h("h2", { id: heading }, "At work");
    const bar = h("progress", { max: Math.max(total, 1), value: 0, "aria-label": "progress" });
    const told = h("p", { role: "status" }, "It has begun.");
    const refused = h("p", { class: "refused", role: "alert" });
    const stop = h("button", { type: "button", class: "danger", onclick: () => end() }, "Stop");
    const close = h("button", { type: "button", class: "main", onclick: () => dialog.close() }, "Close");
    const dialog = h("dialog", { "aria-labelledby": heading },
      h("div", { class: "stack" }, title, bar, told, refused, h("div", { class: "acts" }, stop, close)));
    let over = false;

    async function end() {
      stop.disabled = true;
      try {
        tell(await call("DELETE", path(topic, "passes", name), undefined, `stop: ${verb}`));
      } catch (error) {
        say(refused, error.message);
        stop.disabled = false;
      }
    }
    function tell(progress) {
      over = progress.ended;
      bar.max = Math.max(total, progress.done, 1);
      bar.value = over ? bar.max : progress.done;
      const left = reasons(progress.skipped);
      say(title, over ? "Done" : "At work");
      say(told, `${count(progress.done, "message")} ${verb}${left ? `; ${left}` : ""}.`);
      stop.hidden = over;
    }
    async function poll() {
      while (!over && dialog.open) {
        try {
          const progress = await call("GET", path(topic, "passes", name));
          if (over) return; // it was stopped meanwhile: this is how it was before
          tell(progress);
          say(refused, "");
        } catch (error) {
          say(refused, `${error.message} The work goes on in the mesh.`);
        }
        await new Promise((again) => setTimeout(again, POLL_MS));
      }
    }
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
    close.focus();
    poll();
  });
}

/** A dialog that only shows something. */
export function reveal(title, wide = true) {
  const heading = fresh("shown");
  const name = h("h2", { id: heading, tabindex: -1 }, title);
  const body = h("div", { class: "stack" });
  const dialog = h("dialog", { "aria-labelledby": heading, class: wide ? "wide" : null }, h("div", { class: "stack" }, name, body));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  name.focus();
  return { dialog, show: (...children) => put(body, children), close: () => dialog.close() };
}
