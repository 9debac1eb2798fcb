// @ts-check
/**
 * A block of code: its label, its copy button, its colours. Refuses to know where the code came from.
 */

import { copyText, h, iconButton } from "./dom.js";
import { DOMPurify, hljs } from "./libraries.js";

// Colouring 100 kB takes a tenth of a second; longer code stays plain.
const MOST_CHARACTERS = 100_000;
const PURIFY = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true };

/**
 * Frame a <pre><code class="language-x">. isWhole: the block is finished, so it gets its colours, once.
 * @param {HTMLPreElement} pre
 * @param {boolean} isWhole
 */
export function decorateCode(pre, isWhole) {
  const code = pre.querySelector("code");
  if (!code) return;
  const language = /\blanguage-(\S+)/.exec(code.className)?.[1] ?? "";
  code.removeAttribute("class"); // A model's word would else name one of the page's own classes.
  if (isWhole) colour(code, language.toLowerCase());
  /** @type {HTMLElement} */
  const copy = iconButton("copy", "Copy code", () => void copyText(code.textContent ?? "", copy));
  const head = h("div", { class: "code-head" }, h("span", { class: "code-language" }, language || "text"), copy);
  const frame = h("div", { class: "code-block" }, head);
  pre.replaceWith(frame);
  pre.tabIndex = 0; // Scrolled sideways with the arrow keys.
  frame.append(pre);
}

/**
 * @param {HTMLElement} code
 * @param {string} language
 */
function colour(code, language) {
  const text = code.textContent ?? "";
  if (!hljs.getLanguage(language) || text.length > MOST_CHARACTERS) return;
  const { value } = hljs.highlight(text, { language, ignoreIllegals: true });
  code.replaceChildren(DOMPurify.sanitize(value, PURIFY));
}
