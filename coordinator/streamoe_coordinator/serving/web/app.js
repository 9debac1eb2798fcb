// @ts-check
/**
 * The page, put together. Owns who tells whom; every part does its own work.
 */

import { getJson } from "./api.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { exportJson, exportMarkdown, newConversation } from "./conversation.js";
import { byId, h } from "./dom.js";
import { historyDrawer, settingsDrawer } from "./drawers.js";
import { ServerHealth, bannerOf } from "./health.js";
import { Panel } from "./panel.js";
import { followScroll } from "./scroll.js";
import { loadConversations, saveConversation } from "./storage.js";
import { followTelemetry } from "./telemetry.js";

/** @type {{ id: string, streamoe: { vision: boolean, thinking: boolean, ctx_tokens: number, kv: string } } | null} */
let model = null;
/** @type {import("./health.js").Health | null} */
let lastHealth = null;

const panel = new Panel();
const settings = settingsDrawer(() => {
  if (lastHealth) showHealth(lastHealth);
});
const health = new ServerHealth(showHealth);
const scroll = followScroll(byId("scroll"), byId("turns"), byId("to-end"));
const chat = new Chat(byId("turns"), {
  settings: settings.read,
  model: () => ({ id: model?.id ?? "", hasThinking: model?.streamoe.thinking ?? false }),
  capBytes: () => panel.capBytes,
  whenReady: async (signal) => {
    await health.whenReady(signal);
    await loadModel();
  },
  isReady: () => health.isReady,
  onRunning: (isRunning) => composer.setRunning(isRunning),
  onEdit: (turn) => composer.edit(turn),
  onChange: saveConversation,
});
const composer = new Composer({
  onSend: (text, images, isEdit) => {
    void chat.send(text, images, isEdit);
    showWelcome();
    scroll.toEnd();
  },
  onStop: () => chat.stop(),
  hasVision: () => model?.streamoe.vision ?? null,
});

/** @param {import("./health.js").Health} now */
function showHealth(now) {
  lastHealth = now;
  const words = bannerOf(now, settings.read().key !== "");
  byId("banner").hidden = !words;
  byId("banner").dataset.status = now.status;
  byId("banner-text").textContent = words;
  if (now.status === "ok") void loadModel().catch(() => {}); // A missing key has its banner.
}

async function loadModel() {
  const { data } = await getJson("v1/models", settings.read().key);
  if (JSON.stringify(model) === JSON.stringify(data[0])) return;
  model = data[0];
  byId("model").textContent = model?.id ?? "";
  byId("model").title = model ? `${model.id}: ${model.streamoe.ctx_tokens} tokens of context, KV ${model.streamoe.kv}` : "";
  byId("thinking-field").hidden = !model?.streamoe.thinking;
  composer.refresh();
}

function showWelcome() {
  byId("welcome").hidden = chat.conversation.turns.length > 0;
}

/** @param {import("./conversation.js").Conversation} conversation */
function open(conversation) {
  composer.cancelEdit();
  chat.open(conversation);
  showWelcome();
  scroll.toEnd();
}

/**
 * @param {string} extension
 * @param {string} type
 * @param {string} text
 */
function download(extension, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: `streamoe-${chat.conversation.id}.${extension}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

byId("new-chat").addEventListener("click", () => {
  open(newConversation());
  byId("question").focus();
});
byId("export-json").addEventListener("click", () => {
  download("json", "application/json", exportJson(chat.conversation, settings.read()));
});
byId("export-md").addEventListener("click", () => download("md", "text/markdown", exportMarkdown(chat.conversation)));
byId("banner-settings").addEventListener("click", () => settings.open());
for (const button of document.querySelectorAll("[data-suggest]")) {
  button.addEventListener("click", () => composer.suggest(/** @type {HTMLElement} */ (button).dataset.suggest ?? ""));
}
document.addEventListener("click", (event) => {
  const menu = byId("export");
  if (menu.open && !(event.target instanceof Element && event.target.closest("summary"))) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing || document.querySelector("dialog[open]")) return;
  if (chat.isRunning) chat.stop();
  else if (!composer.cancelEdit()) panel.closeOverlay();
});

addEventListener("pagehide", () => {
  if (!chat.isRunning) return; // A finished answer is kept already.
  chat.stop(); // Else the connection that breaks now would be told of as the server's fault.
  saveConversation(chat.conversation);
});

historyDrawer(open, (id) => {
  if (id === chat.conversation.id) open(newConversation());
});
open(loadConversations()[0] ?? newConversation());
byId("question").focus();
void followTelemetry(
  () => settings.read().key,
  (snapshot) => {
    if (!health.isReady && snapshot.status === "ok") health.checkNow();
    panel.show(snapshot);
  },
  () => {
    panel.lost();
    health.checkNow();
  },
);
