// @ts-check
/**
 * Layers by tier over the last tokens: where each layer's experts came from. Owns the canvas.
 * Colours are the legend's, so that one style sheet has them all.
 */

import { h } from "./dom.js";
import { milliseconds, percent, perToken } from "./format.js";

/**
 * @typedef {import("./telemetry.js").Window} Window
 * @typedef {import("./telemetry.js").Band} Band
 */

const TIERS = /** @type {const} */ ([
  ["hit", "hit", "in a slot already"],
  ["guess", "guessed", "a guess had begun the read"],
  ["miss", "read", "read on demand"],
  ["wait", "waited", "time stood still for reads, beside the slowest layer"],
]);
const ROW = 18;
const GAP = 2;
const HEIGHT = TIERS.length * (ROW + GAP) - GAP;
const WIDEST_CELL = 28;

export class HeatMap {
  /** @type {HTMLCanvasElement} */
  #canvas = /** @type {any} */ (h("canvas", { class: "heat", tabindex: "0", role: "img" }));
  #legend = h("ul", { class: "heat-legend" });
  #detail = h("p", { class: "heat-detail muted", "aria-live": "off" });
  /** @type {Window | null} */
  #window = null;
  /** @type {Band[]} */
  #bands = [];
  #pointed = -1;

  /** @param {HTMLElement} place */
  constructor(place) {
    for (const [tier, name, words] of TIERS) {
      this.#legend.append(h("li", { title: words }, h("span", { class: "swatch", "data-tier": tier }), name));
    }
    place.replaceChildren(h("div", { class: "heat-frame" }, this.#legend, this.#canvas), this.#detail);
    this.#canvas.addEventListener("pointermove", (event) => this.#point(Math.floor(event.offsetX / this.#cellWidth())));
    this.#canvas.addEventListener("pointerleave", () => this.#point(-1));
    this.#canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) this.#point(Math.max(0, Math.min(this.#numLayers() - 1, this.#pointed + step)));
    });
    new ResizeObserver(() => this.#draw()).observe(place);
    document.addEventListener("theme", () => this.#draw());
    this.#draw();
  }

  /**
   * @param {Window | null} window
   * @param {Band[]} bands
   */
  show(window, bands) {
    this.#window = window;
    this.#bands = bands;
    this.#draw();
  }

  #numLayers() {
    return this.#window?.layers.layer.length ?? 0;
  }

  #cellWidth() {
    return Math.min(WIDEST_CELL, this.#canvas.clientWidth / Math.max(1, this.#numLayers()));
  }

  /** @param {number} index */
  #point(index) {
    this.#pointed = index < this.#numLayers() ? index : -1;
    this.#draw();
  }

  /**
   * How full each tier's cell of a layer is, 0 to 1.
   * @param {Window} window
   * @param {number} index
   */
  #shares({ layers }, index) {
    const picks = Math.max(1, layers.hit[index] + layers.guess[index] + layers.miss[index]);
    const slowest = Math.max(...layers.wait_s, 1e-9);
    return [layers.hit[index] / picks, layers.guess[index] / picks, layers.miss[index] / picks, layers.wait_s[index] / slowest];
  }

  #draw() {
    const context = this.#canvas.getContext("2d");
    const width = this.#canvas.clientWidth;
    if (!context || !width) return;
    const ratio = devicePixelRatio || 1;
    this.#canvas.width = Math.round(width * ratio);
    this.#canvas.height = Math.round(HEIGHT * ratio);
    context.scale(ratio, ratio);
    const colours = [...this.#legend.querySelectorAll(".swatch")].map((swatch) => getComputedStyle(swatch).backgroundColor);
    const style = getComputedStyle(this.#canvas);
    const [empty, line] = [style.backgroundColor, style.color];
    const [cell, window] = [this.#cellWidth(), this.#window];
    this.#canvas.dataset.tokens = String(window?.tokens ?? 0);
    for (let index = 0; index < Math.max(this.#numLayers(), window ? 0 : 1); index++) {
      const shares = window ? this.#shares(window, index) : TIERS.map(() => 0);
      const [left, wide] = window ? [index * cell, cell - (cell > 5 ? 1 : 0)] : [0, width];
      shares.forEach((share, row) => {
        const top = row * (ROW + GAP);
        context.globalAlpha = 1;
        context.fillStyle = empty;
        context.fillRect(left, top, wide, ROW);
        // The square root lets a tenth be seen beside a half.
        context.globalAlpha = Math.sqrt(share);
        context.fillStyle = colours[row];
        context.fillRect(left, top, wide, ROW);
      });
    }
    context.globalAlpha = 1;
    context.fillStyle = context.strokeStyle = line;
    for (const at of this.#separators()) context.fillRect(at * cell - 1, 0, 1.5, HEIGHT);
    if (this.#pointed >= 0) context.strokeRect(this.#pointed * cell + 0.5, 0.5, cell - 1, HEIGHT - 1);
    this.#tell();
  }

  /** Where one band's layers end and the next one's begin. */
  #separators() {
    const layers = this.#window?.layers.layer ?? [];
    return this.#bands.slice(1).map((band) => layers.indexOf(band.first_layer)).filter((index) => index > 0);
  }

  #tell() {
    const window = this.#window;
    const words = window ? this.#words(window) : "Nothing has run yet.";
    if (this.#detail.textContent !== words) this.#detail.textContent = words;
    this.#canvas.setAttribute("aria-label", `Where each layer's experts came from. ${words}`);
  }

  /** @param {Window} window */
  #words(window) {
    const { layers, tokens } = window;
    const index = this.#pointed;
    const over = `over the last ${tokens} tokens`;
    if (index < 0) {
      /** @param {number[]} counts */
      const sum = (counts) => counts.reduce((total, count) => total + count, 0);
      const picks = Math.max(1, sum(layers.hit) + sum(layers.guess) + sum(layers.miss));
      return `${layers.layer.length} layers, hit ${percent(sum(layers.hit) / picks)} ${over}.`;
    }
    const number = layers.layer[index];
    const band = this.#bands.find(({ first_layer: first, last_layer: last }) => first <= number && number <= last);
    const [hit, guess, miss] = this.#shares(window, index);
    const place = this.#bands.length > 1 && band ? `layer ${number} on ${band.name}` : `layer ${number}`;
    const wait = `waited ${milliseconds(layers.wait_s[index] / tokens)}`;
    const read = perToken(layers.bytes_read[index] / tokens);
    return `${place}: hit ${percent(hit)}, guessed ${percent(guess)}, read ${percent(miss)}; ${read}, ${wait}`;
  }
}
