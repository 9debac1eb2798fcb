// @ts-check
/**
 * Where a question is written: text, pictures, Send that becomes Stop. Owns its own elements and what is typed.
 * Refuses to know what is done with a question.
 */

import { refusalCard } from "./answer_view.js";
import { ApiError } from "./api.js";
import { byId, h, iconButton } from "./dom.js";
import { imagesOf, toDataUrl } from "./images.js";

/**
 * @typedef {{ onSend: (text: string, images: string[], isEdit: boolean) => void, onStop: () => void,
 *   hasVision: () => boolean | null }} Hooks
 */

const MOST_IMAGES = 8;

export class Composer {
  #hooks;
  /** @type {HTMLTextAreaElement} */
  #text = byId("question");
  /** @type {HTMLButtonElement} */
  #button = byId("send");
  #previews = byId("previews");
  #notice = byId("notice");
  /** @type {HTMLInputElement} */
  #file = byId("image-file");
  /** @type {string[]} */
  #images = [];
  #isRunning = false;
  #isEdit = false;

  /** @param {Hooks} hooks */
  constructor(hooks) {
    this.#hooks = hooks;
    byId("composer").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      if (this.#isRunning) this.#hooks.onStop();
      else this.#send();
    });
    this.#text.addEventListener("input", () => this.#refresh());
    this.#text.addEventListener("keydown", (event) => this.#key(event));
    this.#text.addEventListener("paste", (event) => this.#take(event, imagesOf(event.clipboardData)));
    byId("image").addEventListener("click", () => this.#file.click());
    this.#file.addEventListener("change", () => {
      void this.addImages([...(this.#file.files ?? [])]);
      this.#file.value = "";
    });
    byId("cancel-edit").addEventListener("click", () => this.cancelEdit());
    this.#listenToDrops();
    this.#refresh();
  }

  /** @param {boolean} isRunning */
  setRunning(isRunning) {
    this.#isRunning = isRunning;
    this.#refresh();
  }

  /** Write at the last question again. @param {import("./conversation.js").Turn} turn */
  edit(turn) {
    this.#isEdit = true;
    this.#fill(turn.text, turn.images);
  }

  /** @returns {boolean} whether there was one to cancel */
  cancelEdit() {
    const wasEdit = this.#isEdit;
    this.#isEdit = false;
    if (wasEdit) this.#fill("", []);
    return wasEdit;
  }

  /** Put words into the field. @param {string} text */
  suggest(text) {
    this.#fill(text, this.#images);
  }

  /** @param {File[]} files */
  async addImages(files) {
    this.#notice.replaceChildren();
    try {
      if (this.#hooks.hasVision() === false) {
        throw new ApiError("NoVision", "this model reads text only", "describe the picture, or serve a model that sees");
      }
      for (const file of files) {
        if (this.#images.length === MOST_IMAGES) {
          throw new ApiError("TooManyImages", `${MOST_IMAGES} pictures are the most of one message`, "send these first");
        }
        this.#images.push(await toDataUrl(file));
      }
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#notice.replaceChildren(refusalCard(error));
    }
    this.#refresh();
  }

  #send() {
    const text = this.#text.value.trim();
    if (this.#isRunning || (!text && !this.#images.length)) return;
    const [images, isEdit] = [this.#images, this.#isEdit];
    this.#isEdit = false;
    this.#fill("", []);
    this.#hooks.onSend(text, images, isEdit);
  }

  /**
   * @param {string} text
   * @param {string[]} images
   */
  #fill(text, images) {
    this.#text.value = text;
    this.#images = [...images];
    this.#notice.replaceChildren();
    this.#refresh();
    this.#text.focus();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    // 229: Safari's Enter that ends an input method's composition comes after isComposing is false.
    const isComposing = event.isComposing || event.keyCode === 229;
    if (event.key !== "Enter" || event.shiftKey || isComposing || matchMedia("(pointer: coarse)").matches) return;
    event.preventDefault();
    this.#send();
  }

  /**
   * @param {Event} event
   * @param {File[]} files
   */
  #take(event, files) {
    if (!files.length) return;
    event.preventDefault();
    void this.addImages(files);
  }

  #listenToDrops() {
    const overlay = byId("drop");
    /** @param {DragEvent} event */
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files") ?? false;
    document.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      overlay.hidden = false;
    });
    document.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) overlay.hidden = true;
    });
    document.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault(); // Even a file that is no picture must not replace the page.
      overlay.hidden = true;
      this.#take(event, imagesOf(event.dataTransfer));
    });
  }

  #refresh() {
    this.#text.style.height = "auto";
    this.#text.style.height = `${this.#text.scrollHeight}px`;
    byId("editing").hidden = !this.#isEdit;
    byId("image").hidden = this.#hooks.hasVision() === false;
    const words = this.#isRunning ? "Stop" : "Send";
    this.#button.disabled = !this.#isRunning && !this.#text.value.trim() && !this.#images.length;
    this.#button.title = this.#isRunning ? "Stop (Esc)" : "Send (Enter)";
    this.#button.setAttribute("aria-label", words);
    this.#button.querySelector("use")?.setAttribute("href", `icons.svg#${this.#isRunning ? "stop" : "send"}`);
    this.#previews.replaceChildren(...this.#images.map((url, index) => this.#preview(url, index)));
  }

  /** What a model can do is known now. */
  refresh() {
    this.#refresh();
  }

  /**
   * @param {string} url
   * @param {number} index
   */
  #preview(url, index) {
    const remove = iconButton("close", `Remove picture ${index + 1}`, () => {
      this.#images.splice(index, 1);
      this.#refresh();
    });
    return h("div", { class: "preview" }, h("img", { src: url, alt: `Picture ${index + 1}` }), remove);
  }
}
