// @ts-check
/**
 * The plan's own rows, as one bar and a list. Pointing at a row, or focusing it, says why it is so large.
 */

import { h } from "./dom.js";
import { formatSize, percent } from "./format.js";

/** @typedef {import("./telemetry.js").Plan} Plan */

const NUM_COLOURS = 12;
const HOT_TIER = "hot tier"; // what the rest of the cap buys; it has the colour of its hits

/** A bar for each plan, by its band's name; one alone needs none. */
export class Plans {
  #place;
  /** @type {Map<string, PlanBar>} */
  #bars = new Map();

  /** @param {HTMLElement} place */
  constructor(place) {
    this.#place = place;
  }

  /** @param {{ name: string, plan: Plan }[]} plans */
  show(plans) {
    /** @type {HTMLElement} */ (this.#place.closest("section")).hidden = !plans.length;
    const names = plans.map(({ name }) => name);
    if (JSON.stringify(names) !== JSON.stringify([...this.#bars.keys()])) {
      const places = names.map(() => h("div", { class: "plan" }));
      this.#bars = new Map(names.map((name, index) => [name, new PlanBar(places[index])]));
      const heads = names.map((name) => (names.length > 1 ? h("h3", {}, name) : null));
      this.#place.replaceChildren(...places.flatMap((place, index) => [heads[index], place].filter((part) => part !== null)));
    }
    for (const { name, plan } of plans) this.#bars.get(name)?.show(plan);
  }
}

class PlanBar {
  #bar = h("div", { class: "plan-bar", role: "img", "aria-label": "The cap, divided by the plan" });
  #rows = h("ul", { class: "plan-rows" });
  #why = h("p", { class: "plan-why muted" });
  #shown = "";

  /** @param {HTMLElement} place */
  constructor(place) {
    place.replaceChildren(this.#bar, this.#why, this.#rows);
  }

  /** @param {Plan} plan */
  show({ items }) {
    const shown = JSON.stringify(items);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const total = items.reduce((sum, item) => sum + item.bytes, 0);
    const lines = items.map((item, index) => {
      const colour = item.name === HOT_TIER ? "hot" : String(index % NUM_COLOURS);
      const words = `${item.name}: ${formatSize(item.bytes)} (${percent(item.bytes / total)}): ${item.why}`;
      const point = () => this.#point(index, item);
      const segment = h("div", { class: "plan-segment", "data-colour": colour, title: words, onpointerenter: point });
      segment.style.flexGrow = String(item.bytes / total);
      const swatch = h("span", { class: "swatch", "data-colour": colour });
      const parts = [swatch, h("span", {}, item.name), h("span", { class: "size" }, formatSize(item.bytes))];
      const button = h("button", { type: "button", title: words, onfocus: point, onpointerenter: point, onclick: point }, ...parts);
      return { segment, row: h("li", {}, button) };
    });
    this.#bar.replaceChildren(...lines.map(({ segment }) => segment));
    this.#rows.replaceChildren(...lines.map(({ row }) => row));
    const largest = items.reduce((best, item, index) => (item.bytes > items[best].bytes ? index : best), 0);
    this.#point(largest, items[largest]);
  }

  /**
   * @param {number} index
   * @param {{ name: string, why: string }} item
   */
  #point(index, item) {
    this.#why.textContent = `${item.name}: ${item.why}`;
    for (const parent of [this.#bar, this.#rows]) {
      [...parent.children].forEach((child, at) => child.classList.toggle("pointed", at === index));
    }
  }
}
