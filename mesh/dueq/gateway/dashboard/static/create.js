// Create a topic or a message.

import { call, path, Refused, toast } from "./acts.js";
import { field, h, put, say, section } from "./dom.js";
import { moment } from "./moments.js";
import { fromInput, instant, iso, said, toInput } from "./words.js";

export function show(frame) {
  const topic = h("input", { type: "text", value: frame.topic, required: true, autocomplete: "off", spellcheck: "false" });
  const message = messageForm(topic);
  const made = topicForm(topic);
  const element = h("div", { class: "page" },
    h("div", {}, h("h1", {}, "Create"), h("p", { class: "lead" }, "A message is never delivered before it is due, and it is on all in-sync replicas once this page says so.")),
    frame.topic ? [message, made] : [made, message]);
  return { title: "Create", element };
}

/** A form that sends once at a time, and says what came of it, with a link to what was made. */
function form(title, button, fields, send) {
  const refused = h("p", { class: "refused", role: "alert" });
  const told = h("p", { role: "status" });
  const go = h("button", { type: "submit", class: "main" }, button);
  const element = h("form", { class: "panel" }, h("div", { class: "form" }, fields), h("div", { class: "acts spaced" }, go, told), refused);
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    say(refused, "");
    say(told, "");
    try {
      const { text, link, href } = await send();
      put(told, text, " ", h("a", { href }, link));
      toast(text);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      say(refused, error.message);
    } finally {
      go.disabled = false;
    }
  });
  return section(title, element);
}

function messageForm(topic) {
  const due = h("input", { type: "datetime-local", step: "any", value: toInput(Date.now() + 600_000) });
  const delay = h("input", { type: "text", placeholder: "10m", autocomplete: "off" });
  const form_ = h("select", {}, [["payload", "text"], ["json", "JSON"], ["base64", "base64"]].map(([value, text]) => h("option", { value }, text)));
  const payload = h("textarea", { spellcheck: "false" });
  const key = h("input", { type: "text", autocomplete: "off" });
  const rank = h("input", { type: "number", min: 0, max: 65_535 });
  const group = h("input", { type: "text", autocomplete: "off" });
  const attempts = h("input", { type: "number", min: 1 });
  return form("Message", "Schedule", [
    field("Topic", topic), moment("Due", due), field("Or after", delay, "90s, 1h30m. It counts if it is filled in."),
    field("Key", key, "Your own name for it."), field("Rank", rank, "Of priority and fair topics: the smallest goes first."),
    field("Group", group, "Of fair topics."), field("Attempts", attempts, "Empty: as the topic says."), field("Payload is", form_),
    h("div", { class: "wide" }, field("Payload", payload)),
  ], async () => {
    const body = {};
    if (form_.value === "json") {
      try {
        JSON.parse(payload.value);
        body.payload = payload.value; // as it was written: large numbers stay exact
      } catch (error) {
        throw new Refused({ detail: `The payload is not JSON: ${error.message}` }, 0);
      }
    } else {
      body[form_.value] = payload.value;
    }
    if (delay.value.trim()) body.delay = delay.value.trim();
    else if (fromInput(due.value) !== null) body.due = iso(fromInput(due.value));
    if (key.value) body.key = key.value;
    if (rank.value !== "") body.rank = Number(rank.value);
    if (group.value) body.group = group.value;
    if (attempts.value !== "") body.max_attempts = Number(attempts.value);
    const answer = await call("POST", path(topic.value, "messages"), body, "schedule a message");
    return { text: `Scheduled for ${instant(said(answer.due))}: ${answer.id}`, link: "Show it",
      href: `/messages?${new URLSearchParams({ topic: topic.value, find: answer.id })}` };
  });
}

/** `topic` is the field of the form for a message: whoever makes a topic has one for it. */
function topicForm(topic) {
  const name = h("input", { type: "text", required: true, maxlength: 255, pattern: "[A-Za-z0-9._\\-]+", title: "Letters, digits, dot, underscore and hyphen", autocomplete: "off", spellcheck: "false" });
  const kind = h("select", {}, [["timeline", "timeline: the earliest due first"], ["priority", "priority: the smallest rank first"], ["fair", "fair: groups take turns"]]
    .map(([value, text]) => h("option", { value }, text)));
  const partitions = h("input", { type: "number", min: 1, max: 1024, value: 1 });
  const replicas = h("input", { type: "number", min: 1, max: 9 });
  const attempts = h("input", { type: "number", min: 0 });
  const keys = h("select", {}, [["free", "free: they may repeat"], ["unique", "unique: one message each"]].map(([value, text]) => h("option", { value }, text)));
  const rate = h("input", { type: "number", min: 0, step: "any" });
  return form("Topic", "Create topic", [
    field("Name", name, "Letters, digits, dot, underscore and hyphen."), field("Kind", kind), field("Partitions", partitions, "They work in parallel."),
    field("Copies", replicas, "Empty: three, or as many as brokers."), field("Attempts", attempts, "Then a message is dead. Empty: as many as it takes."),
    field("Rate, messages a second", rate, "Empty: no limit. Only with one partition."), field("Keys", keys),
  ], async () => {
    const body = { name: name.value, kind: kind.value, keys: keys.value, partitions: Number(partitions.value) };
    if (replicas.value !== "") body.replicas = Number(replicas.value);
    if (attempts.value !== "") body.max_attempts = Number(attempts.value);
    if (rate.value !== "") body.rate = Number(rate.value);
    await call("POST", "/v1/topics", body, `create topic ${name.value}`);
    topic.value ||= name.value;
    return { text: `Topic ${name.value} is there.`, link: "Show it", href: `/topic?${new URLSearchParams({ topic: name.value })}` };
  });
}
