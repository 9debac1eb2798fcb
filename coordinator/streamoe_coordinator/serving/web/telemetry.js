// @ts-check
/**
 * The server's snapshots, as they come, and what changed over the last tokens.
 * Owns the connection and the window; refuses to know how figures are drawn.
 */

import { call } from "./api.js";
import { sseItems } from "./sse.js";

/**
 * @typedef {{ layer: number[], hit: number[], guess: number[], miss: number[], wasted: number[],
 *   bytes_read: number[], wait_s: number[] }} Layers
 * @typedef {{ name: string, first_layer: number, last_layer: number, state: string, rtt_ms: number | null,
 *   budget_bytes: number | null, footprint_bytes: number | null, peak_bytes: number | null, detail: string,
 *   plan: Plan | null }} Band
 * @typedef {{ items: { name: string, bytes: number, why: string }[] }} Plan
 * @typedef {{ status: string, budget_bytes: number | null, footprint_bytes: number, peak_bytes: number,
 *   plan: Plan | null, layers: Layers, tokens_run: number, tokens_per_s: number,
 *   requests: { running: number, waiting: number }, bands: Band[] }} Snapshot
 * @typedef {{ tokens: number, layers: Layers }} Window
 */

const WINDOW_TOKENS = 64;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8000;
const COUNTS = /** @type {const} */ (["hit", "guess", "miss", "wasted", "bytes_read", "wait_s"]);

/** The last snapshots, as far back as the window needs. */
export class RecentTokens {
  /** @type {Snapshot[]} */
  #snapshots = [];

  /**
   * What the layers counted over the last 64 tokens, or over the last step where one ran more; null before any.
   * @param {Snapshot} now
   * @returns {Window | null}
   */
  push(now) {
    const last = this.#snapshots.at(-1);
    if (last && (now.tokens_run < last.tokens_run || now.layers.layer.length !== last.layers.layer.length)) {
      this.#snapshots = []; // Another run of the server: its counts begin anew.
    }
    if (this.#snapshots.at(-1)?.tokens_run !== now.tokens_run) this.#snapshots.push(now);
    const isOld = () => this.#snapshots.length > 2 && now.tokens_run - this.#snapshots[1].tokens_run >= WINDOW_TOKENS;
    while (isOld()) this.#snapshots.shift();
    const [first] = this.#snapshots;
    return first === now || this.#snapshots.length < 2 ? null : difference(this.#snapshots.at(-1) ?? now, first);
  }
}

/**
 * @param {Snapshot} now
 * @param {Snapshot} then
 * @returns {Window}
 */
function difference(now, then) {
  const layers = /** @type {Layers} */ ({ layer: now.layers.layer });
  for (const name of COUNTS) layers[name] = now.layers[name].map((count, index) => count - then.layers[name][index]);
  return { tokens: now.tokens_run - then.tokens_run, layers };
}

/** Until somebody can see the page. */
async function whenVisible() {
  while (document.hidden) {
    await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
  }
}

/**
 * Follow the server for as long as the page is open and seen; after a break, try again. A hidden page lets go of its
 * connection: a browser has six to one server, for all its tabs together.
 * @param {() => string} key the API key as it is now
 * @param {(snapshot: Snapshot) => void} onSnapshot
 * @param {() => void} onLost
 */
export async function followTelemetry(key, onSnapshot, onLost) {
  let pauseMs = FIRST_PAUSE_MS;
  for (;;) {
    await whenVisible();
    const abort = new AbortController();
    const letGo = () => document.hidden && abort.abort();
    document.addEventListener("visibilitychange", letGo);
    try {
      const response = await call("api/telemetry", key(), { signal: abort.signal });
      if (response.ok) {
        for await (const item of sseItems(response)) {
          if (item.kind === "data") onSnapshot(JSON.parse(item.text));
          pauseMs = FIRST_PAUSE_MS;
        }
      }
    } catch {
      // The server ended or restarts, or nobody looks: the next round tries again.
    }
    document.removeEventListener("visibilitychange", letGo);
    if (abort.signal.aborted) continue;
    onLost();
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
  }
}
