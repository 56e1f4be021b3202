// What keeps a page up to date: one stream of server-sent events, and the knowledge that it is there.

const SILENCE_MS = 2500;
const REOPEN_MS = 5000;

/** Put a value into a document, or take out what is at a place. */
function change(document, place, value) {
  const last = place.at(-1);
  const inside = place.slice(0, -1).reduce((each, name) => each[name], document);
  if (value.length) inside[last] = value[0];
  else delete inside[last];
}

/** A view whose chart has [second, messages], ascending. */
function charted(view) {
  const pairs = (counts) => Object.entries(counts).map(([second, value]) => [Number(second), value]).sort(([one], [other]) => one - other);
  const { chart } = view;
  return chart ? { ...view, chart: { ...chart, delivered: pairs(chart.delivered), due: pairs(chart.due) } } : view;
}

/**
 * Follow the gateway.
 *
 * `onView(document)` gets each new view; `onLost(text)` a sentence when the gateway is gone, and "" when it is back.
 */
export class Live {
  constructor(parameters, onView, onLost) {
    this.onView = onView;
    this.onLost = onLost;
    this.heard = performance.now();
    this.lastView = 0;
    this.lost = false;
    this.open(parameters);
    setInterval(() => this.check(), 500);
    document.addEventListener("visibilitychange", () => (document.hidden ? this.rest() : this.open(this.parameters)));
    addEventListener("pagehide", () => this.rest());
  }

  /** Ask for another view. A page that nobody sees asks for nothing. */
  open(parameters) {
    this.parameters = parameters;
    this.rest();
    if (document.hidden) return;
    this.heard = performance.now();
    const source = new EventSource(`/dashboard/live?${new URLSearchParams(parameters)}`);
    this.source = source;
    source.addEventListener("view", (event) => {
      this.hear();
      this.lastView = Date.now();
      this.document = JSON.parse(event.data);
      this.onView(charted(this.document));
    });
    source.addEventListener("change", (event) => {
      this.hear();
      this.lastView = Date.now();
      for (const [place, ...value] of JSON.parse(event.data)) change(this.document, place, value);
      this.onView(charted(this.document));
    });
    source.addEventListener("beat", () => this.hear());
    source.addEventListener("error", () => {
      this.fail();
      // A refusal ends an EventSource for good.
      if (source.readyState === EventSource.CLOSED && source === this.source) {
        setTimeout(() => source === this.source && this.open(this.parameters), 1000);
      }
    });
  }

  rest() {
    this.source?.close();
    this.source = null;
  }

  hear() {
    this.heard = performance.now();
    if (this.lost) {
      this.lost = false;
      this.onLost("");
    }
  }

  check() {
    if (!this.source) return;
    const silent = performance.now() - this.heard;
    if (silent > SILENCE_MS) this.fail();
    // A connection that died in the computer's sleep, or on the way, gives no error: nobody else would end it.
    if (silent > REOPEN_MS) this.open(this.parameters);
  }

  fail() {
    if (!this.source) return;
    this.lost = true;
    this.onLost(this.lastView
      ? "This page has lost its gateway. What you see below is old, and nothing can be done from here until it is back."
      : "The gateway does not answer.");
  }
}
