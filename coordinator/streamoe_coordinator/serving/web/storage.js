// @ts-check
/**
 * What the browser keeps: settings and the last conversations, in localStorage and nowhere else.
 * Owns the keys. A browser that keeps nothing (private mode, full storage) still chats.
 */

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {import("./conversation.js").Settings} Settings
 */

const SETTINGS = "streamoe.settings";
const CONVERSATIONS = "streamoe.conversations";
const MOST_CONVERSATIONS = 30;

/** @type {Settings} */
const UNSET = { system: "", temperature: "", topP: "", maxTokens: "", seed: "", thinking: "", key: "" };

/**
 * @param {string} key
 * @returns {any}
 */
function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null; // Not ours, or no storage here.
  }
}

/**
 * @param {string} key
 * @param {unknown} value
 * @returns {boolean} whether it was kept
 */
function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** @returns {Settings} */
export const loadSettings = () => ({ ...UNSET, ...read(SETTINGS) });

/** @param {Settings} settings */
export const saveSettings = (settings) => void write(SETTINGS, settings);

/**
 * The newest first.
 * @returns {Conversation[]}
 */
export function loadConversations() {
  const kept = read(CONVERSATIONS);
  return Array.isArray(kept) ? kept : [];
}

/**
 * Keep this conversation as the newest. Where the storage is full, the oldest go, then the pictures of this one.
 * @param {Conversation} conversation
 */
export function saveConversation(conversation) {
  const others = loadConversations().filter(({ id }) => id !== conversation.id);
  let kept = [conversation, ...others].slice(0, MOST_CONVERSATIONS);
  while (!write(CONVERSATIONS, kept) && kept.length > 1) kept = kept.slice(0, -1);
  if (kept.length > 1 || write(CONVERSATIONS, kept)) return;
  write(CONVERSATIONS, [{ ...conversation, turns: conversation.turns.map((turn) => ({ ...turn, images: [] })) }]);
}

/** @param {string} id */
export function forgetConversation(id) {
  write(CONVERSATIONS, loadConversations().filter((conversation) => conversation.id !== id));
}
