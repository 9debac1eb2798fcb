// @ts-check
/**
 * A conversation as data: its turns, what the server is sent of them, and its exports.
 * Owns the shape that is kept in the browser. Pure; refuses to know of elements.
 */

/**
 * @typedef {{ code: string, message: string, nextStep: string }} Refusal
 * @typedef {{ text: string, thinking: string, thoughtS: number | null, reason: string | null, figures: string,
 *   refusal: Refusal | null }} Answer
 * @typedef {{ text: string, images: string[], answer: Answer | null }} Turn
 * @typedef {{ id: string, model: string, updated: number, turns: Turn[] }} Conversation
 * @typedef {{ system: string, temperature: string, topP: string, maxTokens: string, seed: string,
 *   thinking: "" | "on" | "off", key: string }} Settings
 */

/** @returns {Conversation} */
export function newConversation() {
  return { id: `${Date.now()}-${Math.random().toString(36).slice(2, 8)}`, model: "", updated: Date.now(), turns: [] };
}

/** @returns {Answer} */
export function newAnswer() {
  return { text: "", thinking: "", thoughtS: null, reason: null, figures: "", refusal: null };
}

/**
 * A conversation's name: its first words.
 * @param {Conversation} conversation
 */
export function titleOf(conversation) {
  const text = conversation.turns[0]?.text.trim().replace(/\s+/g, " ") || "Pictures";
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}

/**
 * The messages for the server. A turn that has no answer, save the last, is left out: most chat templates refuse two
 * messages of the user in a row.
 * @param {Conversation} conversation
 * @param {Settings} settings
 */
export function messagesOf(conversation, settings) {
  const messages = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  /** @type {any[]} */
  const rest = conversation.turns.flatMap((turn, index) => {
    const isLast = index === conversation.turns.length - 1;
    if (!isLast && !turn.answer?.text) return [];
    const user = { role: "user", content: contentOf(turn) };
    return isLast ? [user] : [user, { role: "assistant", content: turn.answer?.text }];
  });
  return [...messages, ...rest];
}

/** @param {Turn} turn */
function contentOf(turn) {
  if (!turn.images.length) return turn.text;
  const images = turn.images.map((url) => ({ type: "image_url", image_url: { url } }));
  return turn.text ? [...images, { type: "text", text: turn.text }] : images;
}

/**
 * The request's other fields: only what was set, so that the model's own values hold for the rest.
 * @param {Settings} settings
 * @param {boolean} hasThinking whether the model's template has the switch; without it the server would refuse
 */
export function samplingOf(settings, hasThinking) {
  /** @type {Record<string, unknown>} */
  const fields = {};
  if (settings.temperature !== "") fields.temperature = Number(settings.temperature);
  if (settings.topP !== "") fields.top_p = Number(settings.topP);
  if (settings.maxTokens !== "") fields.max_completion_tokens = Number(settings.maxTokens);
  if (settings.seed !== "") fields.seed = Number(settings.seed);
  if (hasThinking && settings.thinking !== "") fields.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  return fields;
}

/**
 * @param {Conversation} conversation
 * @param {Settings} settings
 */
export function exportJson(conversation, settings) {
  const turns = conversation.turns.map(({ text, images, answer }) => ({
    user: { text, images },
    assistant: answer && {
      text: answer.text,
      thinking: answer.thinking,
      finish_reason: answer.reason,
      figures: answer.figures,
      error: answer.refusal,
    },
  }));
  const updated = new Date(conversation.updated).toISOString();
  return JSON.stringify({ schema: 1, model: conversation.model, updated, system: settings.system, turns }, null, 2);
}

/** @param {Conversation} conversation */
export function exportMarkdown(conversation) {
  const parts = [`# ${titleOf(conversation)}`, `Model: ${conversation.model || "unknown"}`];
  for (const { text, images, answer } of conversation.turns) {
    parts.push("## You", ...images.map((_, index) => `*(image ${index + 1})*`), text);
    if (!answer) continue;
    parts.push("## Model", answer.text);
    if (answer.refusal) parts.push(`> ${answer.refusal.code}: ${answer.refusal.message}`);
  }
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}
