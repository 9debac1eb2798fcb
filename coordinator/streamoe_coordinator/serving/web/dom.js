// @ts-check
/**
 * Making and finding elements. Owns no state; refuses to parse HTML.
 */

/**
 * An element. Keys that begin with "on" are listeners; true sets an empty attribute, false and null none.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | null)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/**
 * The element with this id, which index.html has.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`index.html has no #${id}`);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * An icon of icons.svg, hidden from screen readers: its button has the words.
 * @param {string} name
 * @returns {SVGElement}
 */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `icons.svg#${name}`);
  svg.append(use);
  return svg;
}

/**
 * A button of an icon and, beside it or only for screen readers, its words.
 * @param {string} iconName
 * @param {string} words
 * @param {() => void} press
 * @param {Record<string, any>} [attributes]
 * @returns {HTMLElement}
 */
export function iconButton(iconName, words, press, attributes = {}) {
  return h(
    "button",
    { type: "button", class: "icon-button", title: words, "aria-label": words, onclick: press, ...attributes },
    icon(iconName),
  );
}

/**
 * Put text on the clipboard; a button's icon tells that it is there.
 * @param {string} text
 * @param {Element} button
 */
export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text); // No clipboard outside a secure context: plain HTTP from another machine.
  }
  const use = button.querySelector("use");
  use?.setAttribute("href", "icons.svg#check");
  setTimeout(() => use?.setAttribute("href", "icons.svg#copy"), 1500);
}

/** @param {string} text */
function copyBySelection(text) {
  const area = /** @type {HTMLTextAreaElement} */ (h("textarea", { class: "off-screen", readonly: true }));
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
