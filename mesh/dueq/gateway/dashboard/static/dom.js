// Elements without any HTML text: what comes from messages can only ever be text.

/** Make an element. `attributes` with `on…` are listeners; children are nodes or texts, null is left out. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Make an element of a drawing. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Put children in place of an element's own. */
export function put(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

/** Set a text, if it differs: what stands still is not read aloud again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let made = 0;

/** A name that no other element has. */
export function fresh(prefix) {
  made += 1;
  return `${prefix}-${made}`;
}

/**
 * A table that is updated in place, so that focus and selection stay where they are.
 *
 * A column is {title, cell(row), number}. A cell is a text or a description: {text, href, pill, title, node, key}.
 */
export function table(caption, columns, keyOf, empty) {
  const body = h("tbody");
  const head = h("tr", {}, columns.map((column) =>
    h("th", { scope: "col", class: column.number ? "number" : null }, column.head ?? column.title)));
  const none = h("p", { class: "none" }, empty);
  const element = h("div", { class: "rows" },
    h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, head), body), none);
  const rows = new Map();

  function update(items) {
    const seen = new Set();
    const held = body.contains(document.activeElement);
    let place = body.firstElementChild;
    for (const item of items) {
      const key = String(keyOf(item));
      seen.add(key);
      let row = rows.get(key);
      if (!row) {
        row = { element: h("tr", {}, columns.map((column) =>
          h(column.heads ? "th" : "td", { "data-title": column.title, class: column.number ? "number" : null,
            scope: column.heads ? "row" : null }))), cells: [] };
        rows.set(key, row);
        body.insertBefore(row.element, place);
      } else if (row.element === place) {
        place = place.nextElementSibling;
      } else if (!held) {
        body.insertBefore(row.element, place);
      }
      columns.forEach((column, index) => {
        const told = column.cell(item);
        const mark = typeof told === "object" && told !== null ? told.key ?? JSON.stringify(told) : told;
        if (row.cells[index] !== mark) {
          row.cells[index] = mark;
          const place = row.element.children[index];
          const had = place.contains(document.activeElement);
          put(place, content(told));
          if (had) place.querySelector("a, button, input")?.focus();
        }
      });
    }
    for (const [key, row] of rows) {
      if (!seen.has(key)) {
        row.element.remove();
        rows.delete(key);
      }
    }
    element.classList.toggle("empty", items.length === 0);
  }
  update([]);
  return { element, update };
}

function content(told) {
  if (told === null || told === undefined) return h("span", { class: "faint" }, "–");
  if (typeof told !== "object") return String(told);
  if (told.node) return told.node;
  const text = told.pill ? h("span", { class: `pill ${told.pill}`, title: told.title }, told.text) : told.text;
  if (told.href) return h("a", { href: told.href, title: told.title }, text);
  return told.pill ? text : h("span", { title: told.title, class: told.faint ? "faint" : null }, text);
}

/** A section with a heading. */
export function section(title, ...children) {
  const id = fresh("section");
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

/** A labelled field: `input` gets an id; `hint` is said with it. */
export function field(label, input, hint) {
  input.id ||= fresh("field");
  const said = hint ? h("small", { id: `${input.id}-hint` }, hint) : null;
  if (said) input.setAttribute("aria-describedby", said.id);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, said);
}
