// @ts-check
/**
 * The panel beside the chat and the line under it: every figure from one snapshot.
 * Owns which view shows which figure; refuses to know how snapshots arrive.
 */

import { showBands } from "./bands.js";
import { byId } from "./dom.js";
import { milliseconds, ofCap, percent, perToken, speed } from "./format.js";
import { Gauge, nearness } from "./gauge.js";
import { HeatMap } from "./heat_map.js";
import { Plans } from "./plan_bar.js";
import { RecentTokens } from "./telemetry.js";

/** @typedef {import("./telemetry.js").Snapshot} Snapshot */

export class Panel {
  #gauge = new Gauge(byId("gauge"));
  #plans = new Plans(byId("plan"));
  #heat = new HeatMap(byId("heat"));
  #recent = new RecentTokens();
  /** @type {import("./telemetry.js").Window | null} */
  #window = null;
  /** @type {number | null} the cap, once it is known */
  capBytes = null;

  constructor() {
    for (const id of ["panel-toggle", "status-line"]) byId(id).addEventListener("click", () => this.toggle());
    byId("panel-close").addEventListener("click", () => this.toggle(false));
  }

  /** Beside the chat where there is room, over it where not. @param {boolean} [isOpen] */
  toggle(isOpen) {
    const isWide = matchMedia("(min-width: 64rem)").matches;
    const name = isWide ? "panel-folded" : "panel-open";
    const isOn = document.body.classList.toggle(name, isOpen === undefined ? undefined : isOpen !== isWide);
    byId("panel-toggle").setAttribute("aria-expanded", String(isOn !== isWide));
  }

  /** @returns {boolean} whether it lay over the chat and was closed */
  closeOverlay() {
    const wasOpen = document.body.classList.contains("panel-open");
    if (wasOpen) this.toggle(false);
    return wasOpen;
  }

  /** The stream of snapshots broke: what is shown is old. */
  lost() {
    byId("panel").dataset.state = "lost";
  }

  /** @param {Snapshot} snapshot */
  show(snapshot) {
    byId("panel").dataset.state = "live";
    const { budget_bytes: cap, footprint_bytes: footprint, peak_bytes: peak, bands } = snapshot;
    this.capBytes = cap;
    if (cap === null) return; // The model is being opened: there is no plan yet.
    this.#window = this.#recent.push(snapshot) ?? this.#window;
    this.#gauge.show(footprint, peak, cap);
    this.#plans.show(plansOf(snapshot));
    this.#heat.show(this.#window, bands);
    showBands(byId("bands"), bands);
    this.#showSpeed(snapshot);
    byId("status-text").textContent = [...this.#rates(snapshot), `peak ${ofCap(peak, cap)}`].join(" · ");
    byId("status-line").dataset.state = nearness(footprint, cap)[0];
  }

  /** @param {Snapshot} snapshot */
  #rates(snapshot) {
    const parts = snapshot.requests.running ? [speed(snapshot.tokens_per_s)] : ["idle"];
    if (snapshot.requests.waiting) parts.push(`${snapshot.requests.waiting} waiting`);
    return parts;
  }

  /** @param {Snapshot} snapshot */
  #showSpeed(snapshot) {
    /** @param {number[] | undefined} counts */
    const sum = (counts) => (counts ?? []).reduce((total, count) => total + count, 0);
    const layers = this.#window?.layers;
    const tokens = this.#window?.tokens ?? 1;
    const picks = Math.max(1, sum(layers?.hit) + sum(layers?.guess) + sum(layers?.miss));
    byId("tile-speed").textContent = snapshot.requests.running ? snapshot.tokens_per_s.toFixed(1) : "–";
    byId("tile-hit").textContent = layers ? percent(sum(layers.hit) / picks) : "–";
    byId("tile-read").textContent = layers ? perToken(sum(layers.bytes_read) / tokens).replace("/tok", "") : "–";
    byId("tile-wait").textContent = layers ? milliseconds(sum(layers.wait_s) / tokens) : "–";
    byId("requests").textContent = `${snapshot.requests.running} running, ${snapshot.requests.waiting} waiting`;

  }
}

/**
 * The plans that are known: one of one machine, or a band's each.
 * @param {Snapshot} snapshot
 */
function plansOf({ plan, bands }) {
  const alone = plan ? [{ name: "", plan }] : [];
  return bands.length < 2 ? alone : bands.flatMap(({ name, plan: its }) => (its ? [{ name, plan: its }] : []));
}
