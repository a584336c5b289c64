// @ts-check
/** Small helpers for elements. Text is always set as text, never parsed. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Record<string, string|number|boolean|null|undefined|Record<string, string|number>|Record<string, EventListener>>} Props
 */

/**
 * Makes an element.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props} [props] attributes; `text` sets the text, `data` the data attributes, `on` listeners, `true` an empty attribute
 * @param {...(Node|string|null|undefined)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  set(made, props);
  append(made, children);
  return made;
}

/**
 * Makes an SVG element.
 * @param {string} tag
 * @param {Props} [props] as of `el`
 * @param {...(Node|string|null|undefined)} children
 * @returns {SVGElement}
 */
export function svg(tag, props = {}, ...children) {
  const made = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  set(made, props);
  append(made, children);
  return made;
}

/**
 * The element with this id.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind what it must be
 * @returns {T}
 * @throws {Error} the page has no such element
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (found instanceof kind) return found;
  throw new Error(`the page has no element ${id}`);
}

/**
 * Sets a text only when it changes, so that nothing is laid out or read out for no reason.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A table in a region that scrolls by itself.
 * @param {string} caption
 * @param {import("./types.js").Sheet} sheet
 * @returns {HTMLElement}
 */
export function tableOf(caption, sheet) {
  const inside = (/** @type {string|{text: string, href: string}} */ cell) => (typeof cell === "string" ? cell : el("a", cell));
  const row = (/** @type {import("./types.js").Sheet["rows"][0]} */ cells) =>
    el("tr", {}, ...cells.map((cell, at) => (at === 0 ? el("th", { scope: "row" }, inside(cell)) : el("td", {}, inside(cell)))));
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "quiet", text: caption }),
      el("thead", {}, el("tr", {}, ...sheet.head.map((text) => el("th", { scope: "col", text })))),
      el("tbody", {}, ...sheet.rows.map(row)),
    ),
  );
}

/**
 * @param {Element} made
 * @param {Props} props
 */
function set(made, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = String(value);
    else if (name === "data") for (const [k, v] of Object.entries(value)) made.setAttribute(`data-${k}`, String(v));
    else if (name === "on") for (const [k, v] of Object.entries(value)) made.addEventListener(k, v);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {Element} made
 * @param {(Node|string|null|undefined)[]} children
 */
function append(made, children) {
  for (const child of children) if (child !== null && child !== undefined) made.append(child);
}
