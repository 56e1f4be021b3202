// Messages of a topic: found by id or key, by state, time, job and group; one by one, some, or all that match.

import { act, ask, call, follow, path, reasons, Refused, reveal, toast } from "./acts.js";
import { field, h, put, say, section, table } from "./dom.js";
import { moment } from "./moments.js";
import { bytes, count, fromInput, instant, iso, number, timeElement, toInput, uncounted, visible } from "./words.js";

// A search by key looks at some messages at a time; so often it goes on by itself while it has found none.
const LOOKS_MAX = 20;

/** What is said of messages once an act is done. */
const PAST = {
  "run now": "run now", move: "moved", "change rank": "ranked", cancel: "cancelled", redrive: "redriven", discard: "discarded",
  "take back": "taken back", "give up": "given up", finish: "finished",
};

export function show(frame) {
  const { topic, parameters } = frame;
  if (!topic) {
    return { title: "Messages", element: h("div", { class: "page" }, h("h1", {}, "Which topic?"), h("p", {}, "The page ", h("a", { href: "/" }, "Now"), " has all of them.")) };
  }
  const page = new MessagesPage(frame, topic, parameters);
  page.load();
  if (page.name.value) page.find();
  return { title: `Messages of ${topic}`, element: page.element, live: { topic }, update: (view) => page.update(view) };
}

class MessagesPage {
  constructor(frame, topic, parameters) {
    this.frame = frame;
    this.topic = topic;
    this.cursors = [""];
    this.rows = [];
    this.asked = 0;
    this.again = false; // the list could not be read, for a reason that passes
    this.chosen = new Set();
    this.kind = "";
    const text = (name, attributes = {}) => h("input", { type: "text", value: parameters.get(name) ?? "", autocomplete: "off", spellcheck: "false", ...attributes });
    const time = (name) => {
      const ms = Date.parse(parameters.get(name) ?? "");
      return h("input", { type: "datetime-local", step: 1, value: Number.isNaN(ms) ? "" : toInput(ms) });
    };
    this.state = h("select", {}, [["waiting", "waiting"], ["leased", "with consumers"], ["dead", "dead"]].map(([value, name]) => h("option", { value, selected: value === parameters.get("state") }, name)));
    this.from = time("from");
    this.until = time("until");
    this.prefix = text("key_prefix", { maxlength: 255 });
    this.job = text("job");
    this.group = text("group");
    this.name = text("find", { maxlength: 255, required: true });
    this.headline = h("h1", {}, `Messages of ${topic}`);
    this.lead = h("p", { class: "lead", role: "status" });
    this.refused = h("p", { class: "refused", role: "alert" });
    this.place = h("div", { tabindex: -1 });
    this.bar = h("div", { class: "chosen writes", hidden: true });
    this.earlier = h("button", { type: "button", hidden: true, onclick: () => this.turn(-1) }, "Previous");
    this.later = h("button", { type: "button", hidden: true, onclick: () => this.turn(1) }, "Next");
    this.unfound = h("p", { class: "refused", role: "alert" });
    const one = h("form", { class: "panel", role: "search", "aria-label": "One message" },
      h("div", { class: "row" }, field("Id or key", this.name), h("button", { type: "submit", class: "main" }, "Show")), this.unfound);
    one.addEventListener("submit", (event) => {
      event.preventDefault();
      this.find();
    });
    this.details = h("details", { class: "spaced", open: [this.from, this.until, this.job, this.group].some((each) => each.value) },
      h("summary", {}, "By time, job or group"),
      h("div", { class: "form" }, moment("From", this.from), moment("Until", this.until), field("Job", this.job, "Its key. Counted and changed together, not listed."), field("Group", this.group, "Of fair topics. Counted and changed together, not listed.")));
    this.all = h("button", { type: "button", class: "writes", onclick: () => this.allThatMatch() }, "Change all that match…");
    const form = h("form", { class: "panel", role: "search", "aria-label": "Many messages" },
      h("div", { class: "row" }, field("State", this.state), field("Key begins with", this.prefix),
        h("div", { class: "acts" }, h("button", { type: "submit", class: "main" }, "Find"),
          h("button", { type: "button", onclick: () => this.clear() }, "Clear"), this.all)),
      this.details);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.cursors = [""];
      this.load();
    });
    this.state.addEventListener("change", () => form.requestSubmit());
    this.element = h("div", { class: "page" }, h("div", {}, this.headline, this.lead), h("div", { class: "stack" }, one, form),
      section("Found", this.refused, this.place, h("div", { class: "pager" }, this.earlier, this.later), this.bar));
  }

  /** Live: what the topic holds; the list itself stays as it was asked for. */
  update(view) {
    if (!view.topic) {
      say(this.lead, view.fault ? "Nothing is known of the mesh just now." : `There is no topic ${this.topic}.`);
      return;
    }
    const another = this.kind !== "" && this.kind !== view.topic.kind; // the topic was deleted and made anew
    this.kind = view.topic.kind;
    if (another || (this.again && !view.fault)) this.load();
    say(this.lead, `${count(view.topic.scheduled, "message")} scheduled, ${number(view.topic.ready)} due and waiting, ` +
      `${number(view.topic.leased)} with consumers, ${number(view.topic.dead)} dead.${uncounted(view.topic.leaderless)}${view.topic.paused ? " The topic is paused." : ""}`);
  }

  /** Ask of which kind the topic is, once: that says whether its messages have ranks. */
  async known() {
    if (this.kind) return;
    this.asking ??= call("GET", path(this.topic));
    try {
      const { kind } = await this.asking;
      this.kind ||= kind;
    } catch (error) {
      this.asking = null;
      throw error;
    }
  }

  get ranked() {
    return this.kind === "priority" || this.kind === "fair";
  }

  get dead() {
    return this.state.value === "dead";
  }

  get leased() {
    return this.state.value === "leased";
  }

  /** Straight to one message, by its id, or by its key where keys are unique. */
  async find() {
    const name = this.name.value.trim();
    this.frame.address({ find: name });
    say(this.unfound, "");
    try {
      await this.known();
      const query = { topic: this.topic, name, group: this.group.value };
      const { message, keys } = await call("GET", `/dashboard/find?${new URLSearchParams(query)}`);
      if (message) {
        this.reveal(message, message);
      } else if (keys === "unique") {
        say(this.unfound, `No message of ${this.topic} has this id or key now. It may be delivered, cancelled or expired.`);
      } else {
        say(this.unfound, `No message of ${this.topic} has this id now. Several may have the same key in this topic: below are those whose keys begin so.`);
        this.prefix.value = name;
        this.cursors = [""];
        this.load();
      }
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      say(this.unfound, error.message);
    }
  }

  clear() {
    for (const input of [this.from, this.until, this.prefix, this.job, this.group, this.name]) input.value = "";
    say(this.unfound, "");
    this.cursors = [""];
    this.load();
  }

  turn(step) {
    if (step < 0) this.cursors.pop();
    else if (this.next) this.cursors.push(this.next);
    this.next = null; // a second press, before the page is there, goes nowhere
    this.load();
  }

  moment(input) {
    const ms = fromInput(input.value);
    return ms === null ? "" : iso(ms);
  }

  async load() {
    this.details.hidden = this.all.hidden = this.leased;
    this.frame.address({ state: this.state.value === "waiting" ? "" : this.state.value, from: this.moment(this.from), until: this.moment(this.until),
      key_prefix: this.prefix.value, job: this.job.value, group: this.group.value, find: this.name.value.trim() });
    this.chosen.clear();
    this.drawBar();
    say(this.refused, "");
    this.asked += 1;
    this.again = false;
    const mine = this.asked;
    // What was asked for before may be answered later: only the last answer is shown.
    const last = () => mine === this.asked;
    try {
      await this.known();
      if (!last()) return;
      if (!this.leased && (this.job.value || this.group.value)) await this.loadCount(last);
      else await this.loadPage(last);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (!last()) return;
      this.again = error.status === 0 || error.status >= 500;
      say(this.refused, error.message);
      this.draw([], null, "Nothing could be read.");
    }
  }

  async loadPage(last) {
    const query = { topic: this.topic, state: this.state.value, key_prefix: this.prefix.value,
      ...(this.leased ? {} : { from: this.moment(this.from), until: this.moment(this.until) }) };
    for (let looks = 1; ; looks += 1) {
      const page = await call("GET", `/dashboard/messages?${new URLSearchParams({ ...query, cursor: this.cursors.at(-1) })}`);
      if (!last()) return;
      if (page.messages.length || !page.cursor || looks === LOOKS_MAX) {
        this.draw(page.messages, page.cursor);
        return;
      }
      this.cursors[this.cursors.length - 1] = page.cursor;
    }
  }

  async loadCount(last) {
    this.draw([], null, "A job or group is counted and changed together; it has no list.");
    const found = await call("GET", `/dashboard/count?${new URLSearchParams({ topic: this.topic, ...this.filter() })}`);
    if (!last()) return;
    put(this.place, h("p", { class: "panel" }, `${count(found.matched, "message")} ${found.matched === 1 ? "matches" : "match"}.`));
  }

  draw(rows, cursor, empty) {
    this.rows = rows;
    this.next = cursor;
    const dead = this.dead;
    const all = h("input", { type: "checkbox", "aria-label": "Choose all of this page", onchange: () => {
      for (const box of this.place.querySelectorAll("tbody input")) {
        if (box.checked !== all.checked) box.click();
      }
    } });
    const none = empty ?? (this.prefix.value || this.from.value || this.until.value ? (cursor ? "None of those looked at so far matches. Next looks further." : "None matches.")
      : dead ? "No message is dead." : this.leased ? "No consumer has a message." : "No message waits.");
    const list = table(`Messages of ${this.topic}`, columns(this, this.state.value, all), (row) => row.id, none);
    list.update(rows);
    const held = this.place.contains(document.activeElement);
    put(this.place, list.element);
    if (held) this.place.focus();
    this.earlier.hidden = this.cursors.length < 2;
    this.later.hidden = !cursor;
    this.drawBar();
  }

  choose(id, chosen) {
    if (chosen) this.chosen.add(id);
    else this.chosen.delete(id);
    this.drawBar();
  }

  drawBar() {
    const rows = this.rows.filter(({ id }) => this.chosen.has(id));
    this.bar.hidden = rows.length === 0;
    put(this.bar, h("strong", { role: "status" }, `${count(rows.length, "message")} chosen`), h("span", { class: "acts" }, this.buttons(rows)));
  }

  /** The acts on messages. */
  buttons(rows, after = () => this.load(), state = this.state.value) {
    const ids = rows.map(({ id }) => id);
    const what = count(ids.length, "message");
    // What was changed since it was looked at is left alone, and said.
    const targets = { messages: rows.map(({ id, version }) => ({ id, version })) };
    const button = (text, work, danger) => h("button", { type: "button", class: danger ? "danger" : null, onclick: work }, text);
    const sendTo = (address, body, said) => call("POST", address, body, `${said} ${what}`).then((answer) => {
      const left = {};
      for (const { outcome } of answer.messages) {
        if (outcome !== "done") left[outcome] = (left[outcome] ?? 0) + 1;
      }
      const done = answer.messages.filter((each) => each.outcome === "done").length;
      const rest = reasons(left);
      return `${count(done, "message")} ${PAST[said]}${rest ? `; ${rest}` : ""}.`;
    });
    const send = (verb, body, said) => sendTo(path(this.topic, "messages", verb), body, said);
    const done = (was) => was && after(); // who goes back stays where they were
    const direct = (verb, body, said) => act(() => send(verb, body, said), (text) => text).then(after);
    if (state === "dead") {
      return [
        button("Redrive", () => direct("redrive", targets, "redrive")),
        button("Discard…", () => ask({ title: `Discard ${what}?`, text: "Dead messages that are discarded are gone.", word: "discard", confirm: "Discard", danger: true,
          run: () => send("discard", targets, "discard").then(toast) }).then(done), true),
      ];
    }
    if (state === "leased") {
      const leases = rows.filter(({ token }) => token).map(({ id, token }) => ({ id, token }));
      if (!leases.length) return [];
      const settle = (verb, body, said) => sendTo(path(this.topic, verb), { messages: leases, ...body }, said).then(toast);
      const untold = "The consumer is not told: it may be at work on what it has, and what it says of that later changes nothing.";
      return [
        button("Take back…", () => {
          const delay = h("input", { type: "text", placeholder: "10m", autocomplete: "off" });
          return ask({ title: `Take back ${what}?`, text: `${untold} What is taken back is delivered again, and the attempt does not count.`, confirm: "Take back",
            fields: field("Deliver again after", delay, "90s, 1h30m. Empty: at once."),
            run: () => settle("release", delay.value.trim() ? { delay: delay.value.trim() } : {}, "take back") }).then(done);
        }),
        button("Give up…", () => ask({ title: `Give up ${what}?`, text: `${untold} What is given up is dead: it can be redriven or discarded.`, confirm: "Give up",
          run: () => settle("nack", { dead: true, reason: "given up from the dashboard" }, "give up") }).then(done)),
        button("Finish…", () => ask({ title: `Finish ${what}?`, text: `${untold} What is finished counts as done, and is never delivered again.`, word: ids.length > 1 ? "finish" : "", confirm: ids.length > 1 ? "Finish them" : "Finish it", danger: true,
          run: () => settle("ack", {}, "finish") }).then(done), true),
      ];
    }
    return [
      button("Run now", () => direct("trigger", targets, "run now")),
      button("Move…", () => {
        const when = new When();
        return ask({ title: `Move ${what}`, confirm: "Move", fields: when.fields,
          run: () => send("move", { ...targets, ...when.value() }, "move").then(toast) }).then(done);
      }),
      !this.ranked ? null : button("Rank…", () => {
        const rank = h("input", { type: "number", min: 0, max: 65_535, required: true });
        return ask({ title: `Rank of ${what}`, confirm: "Change", fields: field("Rank", rank, "0 to 65,535; the smallest goes first."),
          run: () => send("change", { ...targets, rank: Number(rank.value) }, "change rank").then(toast) }).then(done);
      }),
      button("Cancel…", () => ask({ title: `Cancel ${what}?`, text: "Once this is done, they are never delivered.", word: ids.length > 1 ? "cancel" : "", confirm: ids.length > 1 ? "Cancel them" : "Cancel it", danger: true,
        run: () => send("cancel", targets, "cancel").then(toast) }).then(done), true),
    ];
  }

  filter() {
    const found = { state: this.state.value };
    if (this.moment(this.from)) found.due_from = this.moment(this.from);
    if (this.moment(this.until)) found.due_until = this.moment(this.until);
    if (this.prefix.value) found.key_prefix = this.prefix.value;
    if (this.job.value) found.job = this.job.value;
    if (this.group.value) found.group = this.group.value;
    return found;
  }

  /** Count first, then say what to do, then see it done. */
  async allThatMatch() {
    const filter = this.filter();
    // What is discarded must be what is seen.
    if (this.dead && !filter.job && !filter.group && (filter.due_from || filter.due_until)) {
      toast("Dead messages are listed by when they died, and changed together by when they were due. Leave out From and Until, or choose messages in the list.", true);
      return;
    }
    let total;
    try {
      total = (await call("POST", path(this.topic, "where"), { do: "count", filter })).matched;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      toast(error.message, true);
      return;
    }
    const chosen = await this.askWhat(filter, total);
    if (!chosen) return;
    let begun = null;
    const sure = await ask({ title: `${chosen.title} ${count(total, "message")}?`, text: `${sentence(filter, this.topic)} The mesh does it; you can watch it, and stop it.`,
      word: chosen.word, confirm: chosen.title, danger: Boolean(chosen.word), fields: chosen.fields,
      run: async () => {
        begun = await call("POST", path(this.topic, "where"), { filter, do: chosen.verb, ...chosen.value() }, `${chosen.said} all that match (${number(total)})`);
      } });
    if (!sure) return;
    await follow(this.topic, begun.name, chosen.past, total);
    this.load();
  }

  askWhat(filter, total) {
    return new Promise((resolve) => {
      const shown = reveal("Change all that match", false);
      let picked = null;
      const pick = (choice) => {
        picked = choice;
        shown.close();
      };
      const button = (text, choice, danger) => h("button", { type: "button", class: danger ? "danger" : null, disabled: total === 0, onclick: () => pick(choice) }, text);
      const by = h("input", { type: "text", required: true, placeholder: "2h or -30m", autocomplete: "off" });
      const spread = h("input", { type: "text", placeholder: "10m", autocomplete: "off" });
      const rank = h("input", { type: "number", min: 0, max: 65_535, required: true });
      const when = new When();
      const spreading = () => (spread.value.trim() ? { spread: spread.value.trim() } : {});
      const spreadField = field("Spread evenly over", spread, "Empty: all at one instant.");
      const none = () => ({});
      const choices = filter.state === "dead" ? [
        button("Redrive…", { verb: "redrive", title: "Redrive", said: "redrive", past: "redriven", fields: spreadField, value: spreading }),
        button("Discard…", { verb: "discard", title: "Discard", said: "discard", past: "discarded", word: "discard", value: none }, true),
      ] : [
        button("Run now…", { verb: "move", title: "Run now", said: "run now", past: "run now", fields: spreadField, value: () => ({ delay: 0, ...spreading() }) }),
        button("Shift…", { verb: "shift", title: "Shift", said: "shift", past: "shifted", fields: field("By", by, "2h: later; -30m: sooner."), value: () => ({ by: by.value.trim() }) }),
        button("Move…", { verb: "move", title: "Move", said: "move", past: "moved", fields: [when.fields, spreadField], value: () => ({ ...when.value(), ...spreading() }) }),
        !this.ranked ? null : button("Rank…", { verb: "change", title: "Change the rank of", said: "change rank of", past: "changed", fields: field("Rank", rank), value: () => ({ rank: Number(rank.value) }) }),
        button("Cancel…", { verb: "cancel", title: "Cancel", said: "cancel", past: "cancelled", word: "cancel", value: none }, true),
      ];
      shown.dialog.addEventListener("close", () => resolve(picked));
      shown.show(h("p", { class: "great" }, count(total, "message")), h("p", {}, sentence(filter, this.topic)),
        h("div", { class: "acts" }, h("button", { type: "button", onclick: () => shown.close() }, "Back"), choices));
    });
  }

  /** One message, with its payload. */
  async open(row) {
    let found;
    try {
      found = await call("GET", `/dashboard/message?${new URLSearchParams({ topic: this.topic, id: row.id })}`);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      toast(error.message, true);
      this.load();
      return;
    }
    this.reveal(found, row);
  }

  reveal(found, row) {
    const shown = reveal(visible(found.key) || found.id);
    const close = () => {
      shown.close();
      this.load();
    };
    shown.show(facts(found, row), found.state === "leased" ? h("p", {}, LEASED) : null, h("div", {}, h("h3", {}, `Payload, ${bytes(found.size)}`), payload(found)),
      h("div", { class: "acts" }, h("button", { type: "button", onclick: () => shown.close() }, "Back"),
        h("span", { class: "acts writes" }, this.buttons([found], close, found.state))));
  }
}

/** When instead: an instant, or a length of time from now. */
class When {
  constructor() {
    this.due = h("input", { type: "datetime-local", step: "any", value: toInput(Date.now() + 3_600_000) });
    this.delay = h("input", { type: "text", placeholder: "10m", autocomplete: "off" });
    this.fields = [moment("To", this.due), field("Or after", this.delay, "90s, 1h30m from now. It counts if it is filled in.")];
  }

  value() {
    const ms = fromInput(this.due.value);
    if (this.delay.value.trim()) return { delay: this.delay.value.trim() };
    if (ms === null) throw new Refused({ detail: "Say when: an instant, or a length of time from now." }, 0);
    return { due: iso(ms) };
  }
}

function sentence(filter, topic) {
  const parts = [];
  if (filter.key_prefix) parts.push(`whose key begins with “${filter.key_prefix}”`);
  if (filter.due_from) parts.push(`due from ${instant(Date.parse(filter.due_from))}`);
  if (filter.due_until) parts.push(`due before ${instant(Date.parse(filter.due_until))}`);
  if (filter.job) parts.push(`of job ${filter.job}`);
  if (filter.group) parts.push(`of group ${filter.group}`);
  const untold = filter.state === "waiting" && (filter.due_from || filter.due_until)
    ? " Those that wait for another attempt count by when they were due, and are listed by when they wait until." : "";
  return `All ${filter.state} messages of ${topic}${parts.length ? ` ${parts.join(", ")}` : ""}.${untold}`;
}

function columns(page, state, all) {
  const dead = state === "dead";
  const shown = [
    { title: "Chosen", head: all, cell: (row) => ({ key: "box", node: h("input", { type: "checkbox", "aria-label": `Choose ${visible(row.key) || row.id}`,
      onchange: (event) => page.choose(row.id, event.target.checked) }) }) },
    { title: "Message", heads: true, cell: (row) => ({ key: "open", node: h("button", { type: "button", class: "link", title: row.id, onclick: () => page.open(row) }, visible(row.key) || row.id) }) },
    { title: dead ? "Died" : "Due", cell: (row) => ({ key: row.due, node: timeElement(dead ? row.died_at : row.due) }) },
  ];
  if (dead) shown.push({ title: "Why", cell: (row) => visible(row.reason) || { text: "no reason was given", faint: true } });
  if (state === "leased") {
    shown.push({ title: "With consumer", cell: (row) => ({ text: row.holder.slice(0, 12), title: row.holder }) },
      { title: "Until", cell: (row) => (row.lease_ends ? { key: row.lease_ends, node: timeElement(row.lease_ends) } : "just now") });
  }
  shown.push({ title: "Attempts", number: true, cell: (row) => number(row.attempt) },
    { title: "Size", number: true, cell: (row) => bytes(row.size) });
  if (page.ranked) shown.push({ title: "Rank", number: true, cell: (row) => number(row.rank) });
  if (page.frame.readOnly) shown.shift();
  return shown;
}

const LEASED = "A consumer has it. It can be run, moved, ranked or cancelled when it waits again: once the consumer gives it back, or its lease ends, or you take it back.";

function facts(found, row) {
  const rows = [
    ["Id", h("span", { class: "code" }, found.id)],
    ["State", found.state + (found.hidden ? ", hidden until its job is committed" : "")],
    ["Due", timeElement(found.due)],
    ["In UTC", h("span", { class: "code" }, iso(found.due))],
    found.waits_until !== found.due ? ["Waits until", timeElement(found.waits_until)] : null,
    found.died_at ? ["Died", timeElement(found.died_at)] : null,
    row.reason ? ["Why", visible(row.reason)] : null,
    ["Attempts", number(found.attempt)],
    found.rank ? ["Rank", number(found.rank)] : null,
    found.group ? ["Group", visible(found.group)] : null,
    found.expires ? ["Expires", timeElement(found.expires)] : null,
    found.holder ? ["With consumer", h("span", { class: "code" }, found.holder)] : null,
    found.lease_ends ? ["Its lease ends", timeElement(found.lease_ends)] : null,
    ["Partition", `${found.partition}, version ${found.version}`],
    ...Object.entries(found.headers).map(([name, value]) => [`Header ${visible(name)}`, visible(value)]),
  ].filter(Boolean);
  return h("dl", { class: "facts" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function payload(found) {
  const { preview } = found;
  if (!preview) return h("p", { class: "faint" }, "It is too long to be shown here.");
  if (preview.form === "empty") return h("p", { class: "faint" }, "It is empty.");
  const name = { json: "JSON", text: "text", hex: "bytes, in hex" }[preview.form];
  return [h("p", { class: "faint" }, preview.cut ? `${name}; only its beginning is shown` : name), h("pre", { tabindex: 0, "aria-label": `payload, ${name}` }, preview.text)];
}
