// @ts-check
/**
 * A model's markdown as elements, safely and while it arrives.
 *
 * Owns what a model's text may become: no scripts, no attributes of its own, no remote images, links to http, https
 * and mailto only. marked lets raw HTML through, so everything it gives passes DOMPurify. Refuses to know of messages.
 */

import { decorateCode } from "./code.js";
import { h } from "./dom.js";
import { DOMPurify, Marked } from "./libraries.js";

const BARE_TAG = /^<\/?(?:b|br|code|del|details|em|i|ins|kbd|mark|s|strong|sub|summary|sup|u)\s*\/?>$/i;
const SAFE_LINK = /^(?:https?:|mailto:)/i;

const PURIFY = {
  ALLOWED_TAGS: [
    ..."a b blockquote br code del details em h1 h2 h3 h4 h5 h6 hr i ins kbd li mark ol p pre s strong sub".split(" "),
    ..."summary sup table tbody td th thead tr u ul".split(" "),
  ],
  ALLOWED_ATTR: ["align", "class", "href", "start", "title"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: SAFE_LINK, // DOMPurify holds every attribute's value against it, save those named next.
  ADD_URI_SAFE_ATTR: ["align", "start"],
  RETURN_DOM_FRAGMENT: true,
};

/** @param {string} text */
const escapeHtml = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);

const markdown = new Marked({
  gfm: true,
  renderer: /** @type {Record<string, (token: any) => string>} */ ({
    // A tag without attributes means itself; any other is text, so that a reader sees what the model wrote.
    html: ({ text }) => (BARE_TAG.test(text.trim()) ? text : escapeHtml(text)),
    // An image would be a request to wherever the model says: it becomes a link that a person may follow.
    image({ href, text }) {
      const label = `image: ${text || href}`;
      return SAFE_LINK.test(href) ? `<a href="${escapeHtml(href)}">${escapeHtml(label)}</a>` : escapeHtml(label);
    },
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  }),
});

/**
 * Elements of tokens. isWhole: no more of them will come, so code is highlighted.
 * @param {any[]} tokens
 * @param {boolean} isWhole
 * @returns {DocumentFragment}
 */
function render(tokens, isWhole) {
  /** @type {DocumentFragment} */
  const fragment = DOMPurify.sanitize(markdown.parser(tokens), PURIFY);
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const pre of fragment.querySelectorAll("pre")) decorateCode(pre, isWhole);
  for (const table of fragment.querySelectorAll("table")) {
    const frame = h("div", { class: "table-frame", tabindex: "0", role: "group", "aria-label": "table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  return fragment;
}

/**
 * Where the last two blocks begin, spaces not counted: a block before them can no longer change.
 * @param {any[]} tokens
 */
function firstOpen(tokens) {
  let numOpen = 0;
  for (let index = tokens.length - 1; index >= 0; index--) {
    if (tokens[index].type !== "space" && ++numOpen === 2) return index;
  }
  return 0;
}

/** @param {{ raw: string }[]} tokens */
const lengthOf = (tokens) => tokens.reduce((sum, { raw }) => sum + raw.length, 0);

/** An answer's text that grows. Parses only its open end, at most once a frame. */
export class StreamedMarkdown {
  #target;
  #tail = h("div", { class: "tail" });
  #whole = "";
  #open = "";
  #frame = 0;

  /** @param {HTMLElement} target an empty element */
  constructor(target) {
    this.#target = target;
    target.append(this.#tail);
  }

  /** All text so far. */
  get text() {
    return this.#whole;
  }

  /** @param {string} text */
  push(text) {
    const clean = text.replaceAll("\r", "");
    this.#whole += clean;
    this.#open += clean;
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** No more will come: draw it as a whole where a link's definition may have come after its use. */
  finish() {
    cancelAnimationFrame(this.#frame);
    const all = markdown.lexer(this.#whole);
    if (Object.keys(all.links).length) this.#target.replaceChildren(render(all, true));
    else this.#tail.replaceWith(render(markdown.lexer(this.#open), true));
  }

  #draw() {
    this.#frame = 0;
    const tokens = markdown.lexer(this.#open);
    const closed = tokens.slice(0, firstOpen(tokens));
    if (closed.length) {
      this.#tail.before(render(closed, true));
      this.#open = this.#open.slice(lengthOf(closed));
    }
    this.#tail.replaceChildren(render(tokens.slice(closed.length), false));
  }
}

/**
 * A text that is whole already.
 * @param {HTMLElement} target
 * @param {string} text
 */
export function renderMarkdown(target, text) {
  target.replaceChildren(render(markdown.lexer(text), true));
}
