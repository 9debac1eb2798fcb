// @ts-check
/**
 * The cap gauge: what the process costs now, its peak, and the cap as a hard line. Owns its elements.
 */

import { h } from "./dom.js";
import { formatSize, percent } from "./format.js";

const NEAR_CAP = 0.95;
const SCALE = 1.06; // The bar goes a little beyond the cap, so that the cap is a line and not the end of a box.

/**
 * How near the cap some bytes are, in a word for the style and words for people.
 * @param {number} bytes
 * @param {number} capBytes
 * @returns {["ok" | "near" | "over", string]}
 */
export function nearness(bytes, capBytes) {
  if (bytes > capBytes) return ["over", "over the cap"];
  if (bytes >= NEAR_CAP * capBytes) return ["near", "near the cap"];
  return ["ok", "within the cap"];
}

export class Gauge {
  #now = h("strong", {}, "–");
  #of = h("span", { class: "muted" });
  #word = h("span", { class: "word" });
  #fill = h("div", { class: "gauge-fill" });
  #peak = h("div", { class: "gauge-peak" });
  #cap = h("div", { class: "gauge-cap" });
  #bar = h("div", { class: "gauge-bar", role: "meter", "aria-label": "Memory of this process", "aria-valuemin": "0" });
  #text = h("p", { class: "gauge-text muted" });

  /** @param {HTMLElement} place */
  constructor(place) {
    this.#bar.append(this.#fill, this.#peak, this.#cap);
    this.#cap.style.insetInlineStart = `${100 / SCALE}%`;
    const head = h("p", { class: "gauge-head" }, this.#now, this.#of, this.#word);
    place.replaceChildren(head, this.#bar, this.#text);
  }

  /**
   * @param {number} footprintBytes
   * @param {number} peakBytes
   * @param {number} capBytes
   */
  show(footprintBytes, peakBytes, capBytes) {
    /** @param {number} bytes */
    const place = (bytes) => `${Math.min(100, (bytes / capBytes / SCALE) * 100)}%`;
    const [state, words] = nearness(footprintBytes, capBytes);
    this.#bar.dataset.state = state;
    this.#word.dataset.state = state;
    this.#word.textContent = words;
    this.#fill.style.inlineSize = place(footprintBytes);
    this.#peak.style.insetInlineStart = place(peakBytes);
    this.#now.textContent = formatSize(footprintBytes);
    this.#of.textContent = `${percent(footprintBytes / capBytes)} of the cap`;
    this.#text.textContent = `peak ${formatSize(peakBytes)} · cap ${formatSize(capBytes)}`;
    this.#bar.setAttribute("aria-valuenow", String(footprintBytes));
    this.#bar.setAttribute("aria-valuemax", String(capBytes));
    this.#bar.setAttribute("aria-valuetext", `${this.#now.textContent}, ${this.#text.textContent}, ${words}`);
  }
}
