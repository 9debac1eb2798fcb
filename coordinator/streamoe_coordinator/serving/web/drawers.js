// @ts-check
/**
 * The two drawers: settings, and the conversations this browser keeps. Owns their dialogs.
 */

import { titleOf } from "./conversation.js";
import { byId, h, iconButton } from "./dom.js";
import { forgetConversation, loadConversations, loadSettings, saveSettings } from "./storage.js";

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {import("./conversation.js").Settings} Settings
 */

/**
 * A dialog that a button opens and a press outside closes.
 * @param {string} id
 * @param {string} openerId
 * @param {() => void} [onOpen]
 */
function drawer(id, openerId, onOpen) {
  /** @type {HTMLDialogElement} */
  const dialog = byId(id);
  byId(openerId).addEventListener("click", () => {
    onOpen?.();
    dialog.showModal();
  });
  dialog.addEventListener("click", (event) => {
    const isOutside = event.target === dialog;
    const isClose = event.target instanceof Element && event.target.closest("[data-close]");
    if (isOutside || isClose) dialog.close();
  });
  return dialog;
}

/**
 * The settings, kept as they are typed.
 * @param {() => void} onKey the API key changed
 * @returns {{ read: () => Settings, open: () => void }}
 */
export function settingsDrawer(onKey) {
  let settings = loadSettings();
  drawer("settings", "settings-open");
  /** @type {HTMLFormElement} */
  const form = byId("settings-form");
  /** @param {Settings} values */
  const fill = (values) => {
    for (const [name, value] of Object.entries(values)) {
      const field = form.elements.namedItem(name);
      if (field instanceof HTMLElement && "value" in field) field.value = value;
    }
  };
  const take = () => {
    const before = settings.key;
    // A number field with words in it reads as "", which means the model's own value.
    settings = /** @type {any} */ ({ ...settings, ...Object.fromEntries(new FormData(form)) });
    saveSettings(settings);
    if (settings.key !== before) onKey();
  };
  fill(settings);
  form.addEventListener("input", take);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(take)); // The fields change after this event.
  return { read: () => settings, open: () => byId("settings-open").click() };
}

/**
 * @param {(conversation: Conversation) => void} onOpen
 * @param {(id: string) => void} onForget
 */
export function historyDrawer(onOpen, onForget) {
  const list = byId("history-list");
  const fill = () => {
    const kept = loadConversations();
    byId("history-empty").hidden = kept.length > 0;
    list.replaceChildren(...kept.map(row));
  };
  const dialog = drawer("history", "history-open", fill);

  /** @param {Conversation} conversation */
  function row(conversation) {
    const title = titleOf(conversation);
    const open = () => {
      dialog.close();
      onOpen(conversation);
    };
    const forget = iconButton("close", `Delete “${title}”`, () => {
      forgetConversation(conversation.id);
      onForget(conversation.id);
      fill();
    });
    const when = new Date(conversation.updated).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    const words = h("button", { type: "button", class: "history-title", onclick: open }, h("span", {}, title), h("small", { class: "muted" }, when));
    return h("li", {}, words, forget);
  }
}
