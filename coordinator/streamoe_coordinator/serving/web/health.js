// @ts-check
/**
 * Whether the server can answer, asked again and again, and who waits for that. Owns the banner's words.
 */

import { ApiError, call } from "./api.js";

/**
 * @typedef {{ status: string, model: string, needs_key: boolean,
 *   error: null | { code: string, message: string, next_step: string } }} Health
 */

const SOON_MS = 700;
const LATER_MS = 8000;
const UNREACHABLE = { status: "unreachable", model: "", needs_key: false, error: null };

export class ServerHealth {
  /** @type {Health} */
  #health = { ...UNREACHABLE, status: "unknown" };
  /** @type {(() => void)[]} */
  #waiting = [];
  #wake = () => {};
  #onChange;

  /** @param {(health: Health) => void} onChange */
  constructor(onChange) {
    this.#onChange = onChange;
    void this.#poll();
  }

  get isReady() {
    return this.#health.status === "ok";
  }

  /** Ask now rather than later. */
  checkNow() {
    this.#wake();
  }

  /**
   * Resolves when the model is open. Raises ApiError where it failed to open, AbortError where signal says so.
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  whenReady(signal) {
    return new Promise((resolve, reject) => {
      const look = () => {
        const { status, error } = this.#health;
        if (signal.aborted) reject(signal.reason);
        else if (status === "failed" && error) reject(new ApiError(error.code, error.message, error.next_step));
        else if (this.isReady || status === "draining") resolve(); // A draining server words its own refusal.
        else this.#waiting.push(look);
      };
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      look();
    });
  }

  async #poll() {
    for (;;) {
      const before = JSON.stringify(this.#health);
      this.#health = await this.#ask();
      if (JSON.stringify(this.#health) !== before) this.#onChange(this.#health);
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const look of waiting) look();
      await new Promise((resolve) => {
        this.#wake = () => resolve(undefined);
        setTimeout(resolve, this.isReady ? LATER_MS : SOON_MS);
      });
    }
  }

  /** @returns {Promise<Health>} */
  async #ask() {
    try {
      return await (await call("health", "")).json();
    } catch {
      return UNREACHABLE;
    }
  }
}

/**
 * What a banner says, or "" where all is well.
 * @param {Health} health
 * @param {boolean} hasKey
 */
export function bannerOf({ status, needs_key: needsKey, error }, hasKey) {
  if (status === "failed") return [error?.message ?? "the model did not open", error?.next_step].filter(Boolean).join(" → ");
  if (status === "loading") return "The model is being opened. You can write already; it is asked as soon as it can answer.";
  if (status === "draining") return "The server is ending and takes no more questions.";
  if (status === "unreachable") return "The server does not answer. Trying again…";
  return needsKey && !hasKey ? "This server wants its API key: enter it in the settings." : "";
}
