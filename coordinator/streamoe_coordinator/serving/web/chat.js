// @ts-check
/**
 * The running conversation: asking, stopping, asking again. Owns the conversation shown and the one request in flight.
 * Refuses to know of the keyboard and of storage.
 */

import { AnswerView, figuresOf } from "./answer_view.js";
import { ApiError, streamChat } from "./api.js";
import { messagesOf, newAnswer, newConversation, samplingOf } from "./conversation.js";
import { copyText, h, iconButton } from "./dom.js";

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {import("./conversation.js").Settings} Settings
 * @typedef {import("./conversation.js").Turn} Turn
 * @typedef {{ settings: () => Settings, model: () => { id: string, hasThinking: boolean }, capBytes: () => number | null,
 *   whenReady: (signal: AbortSignal) => Promise<void>, isReady: () => boolean,
 *   onRunning: (isRunning: boolean) => void, onEdit: (turn: Turn) => void,
 *   onChange: (conversation: Conversation) => void }} Hooks
 */

export class Chat {
  #list;
  #hooks;
  #conversation = newConversation();
  /** @type {AbortController | null} */
  #running = null;
  /** @type {AnswerView[]} */
  #views = [];

  /**
   * @param {HTMLElement} list where turns are shown
   * @param {Hooks} hooks
   */
  constructor(list, hooks) {
    this.#list = list;
    this.#hooks = hooks;
  }

  get conversation() {
    return this.#conversation;
  }

  get isRunning() {
    return this.#running !== null;
  }

  /** Show another conversation. @param {Conversation} conversation */
  open(conversation) {
    this.stop();
    this.#conversation = conversation;
    this.#views = [];
    this.#list.replaceChildren();
    for (const turn of conversation.turns) this.#append(turn)?.showKept();
    this.#refreshActions();
  }

  /** Close the request in flight: the server stops within a token. */
  stop() {
    this.#running?.abort();
    this.#running = null;
  }

  /**
   * Ask. isEdit: in place of the last question and its answer.
   * @param {string} text
   * @param {string[]} images data URLs
   * @param {boolean} isEdit
   */
  async send(text, images, isEdit) {
    if (this.isRunning) return;
    if (isEdit) this.#dropLast();
    this.#conversation.turns.push({ text, images, answer: null });
    await this.#ask();
  }

  /** Ask the last question again. */
  async regenerate() {
    const turn = this.#conversation.turns.at(-1);
    if (this.isRunning || !turn) return;
    this.#dropLast();
    this.#conversation.turns.push({ ...turn, answer: null });
    await this.#ask();
  }

  #dropLast() {
    this.#conversation.turns.pop();
    this.#views.pop();
    this.#list.lastElementChild?.remove();
  }

  async #ask() {
    const conversation = this.#conversation;
    const turn = conversation.turns[conversation.turns.length - 1];
    const settings = this.#hooks.settings();
    const messages = messagesOf(conversation, settings);
    const answer = newAnswer();
    turn.answer = answer;
    const view = /** @type {AnswerView} */ (this.#append(turn));
    const abort = new AbortController();
    this.#running = abort;
    this.#refreshActions();
    this.#hooks.onRunning(true);
    view.begin(this.#hooks.isReady() ? "Waiting for the model" : "Waiting until the model is open");
    try {
      await this.#hooks.whenReady(abort.signal);
      const { id, hasThinking } = this.#hooks.model();
      conversation.model = id;
      const request = { model: id, messages, ...samplingOf(settings, hasThinking) };
      const ending = await streamChat(request, settings.key, abort.signal, {
        onPrefill: (progress) => view.prefill(progress),
        onText: (piece) => view.pushText(piece),
        onThinking: (piece) => view.pushThinking(piece),
      });
      answer.reason = ending.reason;
      answer.figures = figuresOf(ending, this.#hooks.capBytes());
    } catch (error) {
      answer.figures = view.liveFigures;
      if (abort.signal.aborted) answer.reason = "cancelled";
      else if (error instanceof ApiError) {
        answer.refusal = { code: error.code, message: error.message, nextStep: error.nextStep };
      } else throw error;
    } finally {
      this.#finish(conversation, view, abort);
    }
  }

  /**
   * @param {Conversation} conversation
   * @param {AnswerView} view
   * @param {AbortController} abort
   */
  #finish(conversation, view, abort) {
    view.end();
    conversation.updated = Date.now();
    this.#hooks.onChange(conversation);
    if (this.#running !== null && this.#running !== abort) return; // Another conversation is being answered by now.
    this.#running = null;
    this.#hooks.onRunning(false);
    this.#refreshActions();
  }

  /**
   * @param {Turn} turn
   * @returns {AnswerView | null}
   */
  #append(turn) {
    const images = turn.images.map((url, index) => h("img", { src: url, alt: `Picture ${index + 1}` }));
    const pictures = images.length ? h("div", { class: "pictures" }, ...images) : null;
    const text = turn.text ? h("div", { class: "question-text" }, turn.text) : null;
    const buttons = h("div", { class: "buttons" });
    const question = h("article", { class: "question", "aria-label": "You" }, pictures, text, buttons);
    const view = turn.answer && new AnswerView(turn.answer);
    if (view) this.#views.push(view);
    this.#list.append(h("div", { class: "turn" }, question, view?.element ?? null));
    return view;
  }

  /** Copy everywhere; regenerate and edit at the last turn, while nothing runs. */
  #refreshActions() {
    const { turns } = this.#conversation;
    turns.forEach((turn, index) => {
      const isOpen = index === turns.length - 1 && !this.isRunning;
      /** @type {HTMLElement} */
      const copy = iconButton("copy", "Copy message", () => void copyText(turn.text, copy));
      const edit = iconButton("edit", "Edit message", () => this.#hooks.onEdit(turn));
      const place = this.#list.children[index].querySelector(".question .buttons");
      place?.replaceChildren(...(turn.text ? [copy] : []), ...(isOpen ? [edit] : []));
      const isStreaming = index === turns.length - 1 && this.isRunning;
      if (!isStreaming) this.#views[index]?.setActions({ onRegenerate: isOpen ? () => void this.regenerate() : null });
    });
  }
}
