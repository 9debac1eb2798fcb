// @ts-check
/**
 * Server-sent events out of a response's bytes. Owns lines and their boundaries; refuses to know what they say.
 * EventSource cannot send a key or a body, so the page reads streams itself.
 */

/**
 * @typedef {{ kind: "data" | "comment", text: string }} SseItem
 */

export class SseParser {
  #line = "";
  /** @type {string[]} */
  #data = [];

  /**
   * More text of the stream; the events and comments that it completes.
   * @param {string} text
   * @returns {SseItem[]}
   */
  push(text) {
    const lines = (this.#line + text).split("\n");
    this.#line = /** @type {string} */ (lines.pop());
    return lines.flatMap((line) => this.#take(line.endsWith("\r") ? line.slice(0, -1) : line));
  }

  /**
   * @param {string} line
   * @returns {SseItem[]}
   */
  #take(line) {
    if (line.startsWith(":")) return [{ kind: "comment", text: line.slice(1).trim() }];
    if (line.startsWith("data:")) this.#data.push(line.slice(line[5] === " " ? 6 : 5));
    if (line !== "" || !this.#data.length) return [];
    const text = this.#data.join("\n");
    this.#data = [];
    return [{ kind: "data", text }];
  }
}

/**
 * The items of a response, as they arrive.
 * @param {Response} response
 * @returns {AsyncGenerator<SseItem>}
 */
export async function* sseItems(response) {
  if (!response.body) return;
  const parser = new SseParser();
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {}); // Closed or aborted already: nothing is left to cancel.
  }
}
