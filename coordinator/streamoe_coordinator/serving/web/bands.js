// @ts-check
/**
 * The bands of a cluster, one chip each: which layers, whether it answers, how far away, how near its cap.
 */

import { h } from "./dom.js";
import { formatSize, ofCap } from "./format.js";
import { nearness } from "./gauge.js";

/** @typedef {import("./telemetry.js").Band} Band */

const WORDS = {
  up: "answers",
  suspect: "slow to answer; waiting for it",
  lost: "lost; answers go on when it is back or another takes its layers",
};

/**
 * @param {HTMLElement} place its section is hidden for the one band of one machine
 * @param {Band[]} bands
 */
export function showBands(place, bands) {
  const section = /** @type {HTMLElement} */ (place.closest("section"));
  section.hidden = bands.length < 2;
  if (!section.hidden) place.replaceChildren(...bands.map(chip));
}

/** @param {Band} band */
function chip(band) {
  const { name, first_layer: first, last_layer: last, state, footprint_bytes: footprint, budget_bytes: cap } = band;
  const words = band.detail || (/** @type {Record<string, string>} */ (WORDS)[state] ?? state);
  const rtt = band.rtt_ms === null ? "" : ` · ${band.rtt_ms.toFixed(1)} ms`;
  const dot = h("span", { class: "dot", "aria-hidden": "true" });
  const place = h("span", { class: "muted" }, `layers ${first}-${last}${rtt}`);
  const head = h("p", { class: "band-head" }, dot, h("strong", {}, name), place);
  const hasCap = footprint !== null && cap !== null; // A node that was never reached has told none.
  const costs = hasCap ? `${ofCap(footprint, cap)} · ` : "";
  const title = band.peak_bytes === null ? null : `peak ${formatSize(band.peak_bytes)}`;
  const bar = hasCap ? capBar(footprint, cap) : null;
  return h("li", { class: "band", "data-state": state, title }, head, bar, h("p", { class: "muted" }, `${costs}${words}`));
}

/**
 * @param {number} footprintBytes
 * @param {number} capBytes
 */
function capBar(footprintBytes, capBytes) {
  const fill = h("div", { class: "band-fill" });
  fill.style.inlineSize = `${Math.min(100, (footprintBytes / capBytes) * 100)}%`;
  return h("div", { class: "band-bar", "data-state": nearness(footprintBytes, capBytes)[0] }, fill);
}
