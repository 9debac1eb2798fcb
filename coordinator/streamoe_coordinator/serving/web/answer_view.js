// @ts-check
/**
 * One answer on the page: thinking folded, text, what it costs, what went wrong.
 * Owns its elements and the live figures; refuses to know how an answer is asked for.
 */

import { copyText, h, icon, iconButton } from "./dom.js";
import { duration, ofCap, percent, perToken, speed } from "./format.js";
import { StreamedMarkdown, renderMarkdown } from "./markdown.js";

/**
 * @typedef {import("./conversation.js").Answer} Answer
 * @typedef {import("./api.js").Prefill} Prefill
 * @typedef {import("./api.js").Ending} Ending
 */

const SPEED_WINDOW_MS = 1000;
const SHORTEST_SAMPLE_MS = 200;
const REASONS = { length: "ended at the token limit", cancelled: "stopped", tool_calls: "asked for a tool" };

/**
 * The line under a finished answer, as the terminal has it.
 * @param {Ending} ending
 * @param {number | null} capBytes
 */
export function figuresOf({ usage, timings }, capBytes) {
  const parts = usage ? [`${usage.completion_tokens} tok`] : [];
  if (timings?.tokens_per_s) parts.push(speed(timings.tokens_per_s));
  if (timings?.ttft_s) parts.push(`TTFT ${duration(timings.ttft_s)}`);
  if (timings?.hit_rate != null) parts.push(`hit ${percent(timings.hit_rate)}`);
  if (timings?.read_bytes != null && usage?.completion_tokens) {
    parts.push(`read ${perToken(timings.read_bytes / usage.completion_tokens)}`);
  }
  if (timings?.peak_bytes && capBytes) parts.push(`peak ${ofCap(timings.peak_bytes, capBytes)}`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (cached) parts.push(`${cached} of ${usage?.prompt_tokens} prompt tok reused`);
  return parts.join(" · ");
}

export class AnswerView {
  #answer;
  #body = h("div", { class: "markdown" });
  #thoughts = h("div", { class: "thoughts" });
  #summary = h("span", {}, "Thinking…");
  #thinking = h("details", { class: "thinking", hidden: true }, h("summary", {}, icon("chevron"), this.#summary), this.#thoughts);
  #wait = h("div", { class: "wait" });
  #refusal = h("div", { class: "refusal-place" });
  #figures = h("span", { class: "figures" });
  #buttons = h("span", { class: "buttons" });
  /** @type {StreamedMarkdown | null} */
  #stream = null;
  #askedMs = performance.now();
  #thoughtMs = 0;
  /** @type {number[]} */
  #arrivals = [];
  #numPieces = 0;
  #ttft = "";
  element;

  /** @param {Answer} answer which this view fills while it streams */
  constructor(answer) {
    this.#answer = answer;
    const live = h("div", { class: "live", "aria-live": "polite" }, this.#body, this.#refusal);
    const foot = h("div", { class: "answer-foot" }, this.#buttons, this.#figures);
    this.element = h("article", { class: "answer", "aria-label": "Answer" }, this.#thinking, live, this.#wait, foot);
  }

  /** Show an answer that was kept. */
  showKept() {
    renderMarkdown(this.#body, this.#answer.text);
    if (this.#answer.thinking) this.#showThoughts(this.#answer.thinking);
    this.#close();
  }

  /** An answer was asked for. @param {string} words */
  begin(words) {
    this.#stream = new StreamedMarkdown(this.#body);
    this.#body.setAttribute("aria-busy", "true");
    this.#wait.replaceChildren(h("span", { class: "dots", "aria-hidden": "true" }), words);
    this.element.classList.add("streaming");
  }

  /** @param {Prefill} progress */
  prefill({ done_tokens: done, total_tokens: total, elapsed_s: elapsed }) {
    const isSample = done > 0 && elapsed * 1000 >= SHORTEST_SAMPLE_MS;
    const left = isSample ? ` · ${duration((elapsed / done) * (total - done))} left` : "";
    const bar = h("progress", { max: total, value: done, "aria-label": "Prompt read" });
    this.#wait.replaceChildren(bar, h("span", {}, `Reading the prompt · ${done} of ${total} tokens${left}`));
  }

  /** @param {string} text */
  pushText(text) {
    if (this.#answer.thinking && this.#answer.thoughtS === null) this.#endThinking();
    this.#answer.text += text;
    this.#stream?.push(text);
    this.#arrived();
  }

  /** @param {string} text */
  pushThinking(text) {
    this.#thoughtMs ||= performance.now();
    this.#answer.thinking += text;
    this.#showThoughts(text);
    this.#arrived();
  }

  /**
   * It is over: by itself, stopped, or refused. Whoever asks has filled the answer's reason, figures and refusal.
   * @returns {void}
   */
  end() {
    this.#stream?.finish();
    this.#stream = null;
    if (this.#answer.thinking && this.#answer.thoughtS === null) this.#endThinking();
    this.#body.removeAttribute("aria-busy");
    this.element.classList.remove("streaming");
    this.#close();
  }

  /** The figures while it streams: all there are of an answer that was stopped. */
  get liveFigures() {
    return this.#figures.textContent ?? "";
  }

  /** The buttons under it. @param {{ onRegenerate: (() => void) | null }} actions */
  setActions({ onRegenerate }) {
    /** @type {HTMLElement} */
    const copy = iconButton("copy", "Copy answer", () => void copyText(this.#answer.text, copy));
    const again = onRegenerate && iconButton("again", "Regenerate", onRegenerate);
    this.#buttons.replaceChildren(...[this.#answer.text ? copy : null, again].filter((button) => button !== null));
  }

  /** @param {string} text */
  #showThoughts(text) {
    this.#thinking.hidden = false;
    this.#thoughts.append(text);
    if (this.#answer.thoughtS !== null) this.#summary.textContent = `Thought for ${duration(this.#answer.thoughtS)}`;
  }

  #endThinking() {
    this.#answer.thoughtS = (performance.now() - this.#thoughtMs) / 1000;
    this.#summary.textContent = `Thought for ${duration(this.#answer.thoughtS)}`;
  }

  #arrived() {
    const now = performance.now();
    this.#wait.replaceChildren();
    this.#ttft ||= `TTFT ${duration((now - this.#askedMs) / 1000)}`;
    this.#numPieces += 1;
    this.#arrivals.push(now);
    while (this.#arrivals[0] < now - SPEED_WINDOW_MS) this.#arrivals.shift();
    const spanMs = now - this.#arrivals[0];
    const parts = [`≈ ${this.#numPieces} tok`, this.#ttft];
    if (spanMs >= SHORTEST_SAMPLE_MS) parts.unshift(speed(((this.#arrivals.length - 1) / spanMs) * 1000));
    this.#figures.textContent = parts.join(" · ");
  }

  #close() {
    const { reason, figures, refusal } = this.#answer;
    this.#wait.replaceChildren();
    const wasLeft = reason === null && refusal === null; // The page was closed before the end.
    const ended = wasLeft ? "interrupted" : /** @type {Record<string, string>} */ (REASONS)[reason ?? ""];
    this.#figures.textContent = [figures, ended].filter(Boolean).join(" · ");
    this.#refusal.replaceChildren(...(refusal ? [refusalCard(refusal)] : []));
  }
}

/**
 * What was refused, why, and what to do.
 * @param {import("./conversation.js").Refusal} refusal
 */
export function refusalCard({ code, message, nextStep }) {
  return h(
    "div",
    { class: "refusal", role: "alert" },
    icon("alert"),
    h("div", {}, h("p", { class: "refusal-message" }, message), nextStep ? h("p", {}, `→ ${nextStep}`) : null, h("code", {}, code)),
  );
}
