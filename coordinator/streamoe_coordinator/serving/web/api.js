// @ts-check
/**
 * The server, as calls. Owns paths, headers and the shape of an error; refuses to know of elements.
 */

import { sseItems } from "./sse.js";

/**
 * @typedef {{ done_tokens: number, total_tokens: number, cached_tokens: number, elapsed_s: number }} Prefill
 * @typedef {{ tokens_per_s: number | null, ttft_s: number | null, hit_rate: number | null, read_bytes: number | null,
 *   peak_bytes: number | null }} Timings
 * @typedef {{ prompt_tokens: number, completion_tokens: number,
 *   prompt_tokens_details?: { cached_tokens?: number } }} Usage
 * @typedef {{ onPrefill: (progress: Prefill) => void, onText: (text: string) => void,
 *   onThinking: (text: string) => void }} Listeners
 * @typedef {{ reason: string | null, usage: Usage | null, timings: Timings | null }} Ending
 */

/** What the server, or the way to it, refused. */
export class ApiError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {string} [nextStep]
   */
  constructor(code, message, nextStep = "") {
    super(message);
    this.code = code;
    this.nextStep = nextStep;
  }
}

/** @param {any} error the server's error object */
const errorOf = (error) => new ApiError(String(error.code ?? "error"), String(error.message ?? ""), error.next_step);

/** @param {Response} response */
async function refusal(response) {
  const body = await response.json().catch(() => null);
  if (body?.error) return errorOf(body.error);
  return new ApiError(`HTTP ${response.status}`, response.statusText || "the server gave no reason", "try again");
}

const LOST = "see whether `streamoe serve` still runs, then try again";

/**
 * A response, whatever its status. Raises ApiError where none came.
 * @param {string} path
 * @param {string} key the API key, or ""
 * @param {RequestInit} [init]
 */
export async function call(path, key, init = {}) {
  const headers = new Headers(init.headers);
  if (key) headers.set("Authorization", `Bearer ${key}`);
  try {
    return await fetch(path, { ...init, headers });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError("ServerUnreachable", "the server does not answer", LOST);
  }
}

/**
 * A JSON answer. Raises ApiError for one that is no 2xx.
 * @param {string} path
 * @param {string} key
 */
export async function getJson(path, key) {
  const response = await call(path, key);
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/**
 * Stream one answer. Raises ApiError for a refusal before the first byte or within the stream; whatever fetch raises
 * once signal is aborted.
 * @param {Record<string, unknown>} request
 * @param {string} key
 * @param {AbortSignal} signal
 * @param {Listeners} listeners
 * @returns {Promise<Ending>}
 */
export async function streamChat(request, key, signal, listeners) {
  const response = await call("v1/chat/completions", key, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await refusal(response);
  /** @type {Ending} */
  const ending = { reason: null, usage: null, timings: null };
  let isDone = false;
  try {
    for await (const item of sseItems(response)) {
      if (item.kind === "comment") takeComment(item.text, listeners);
      else if (item.text === "[DONE]") isDone = true;
      else takeChunk(JSON.parse(item.text), ending, listeners);
    }
  } catch (error) {
    if (error instanceof ApiError || signal.aborted) throw error;
  }
  if (!isDone) throw new ApiError("ConnectionLost", "the connection ended in the middle of the answer", LOST);
  return ending;
}

/**
 * @param {string} text
 * @param {Listeners} listeners
 */
function takeComment(text, listeners) {
  const [word, ...rest] = text.split(" ");
  if (word === "prefill") listeners.onPrefill(JSON.parse(rest.join(" ")));
}

/**
 * @param {any} chunk
 * @param {Ending} ending
 * @param {Listeners} listeners
 */
function takeChunk(chunk, ending, listeners) {
  if (chunk.error) throw errorOf(chunk.error);
  ending.usage = chunk.usage ?? ending.usage;
  ending.timings = chunk.timings ?? ending.timings;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  ending.reason = choice.finish_reason ?? ending.reason;
  if (choice.delta?.reasoning_content) listeners.onThinking(choice.delta.reasoning_content);
  if (choice.delta?.content) listeners.onText(choice.delta.content);
}
