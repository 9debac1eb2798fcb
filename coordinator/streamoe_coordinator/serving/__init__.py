"""Answers over HTTP: one band, or a chain of them, behind the APIs that people's tools speak.

Owns requests, their order, prefix reuse, the APIs and what guards them. Refuses to know how layers are computed.

Endpoints, and the JSON that the page reads:

POST /v1/chat/completions, /v1/completions, /v1/responses   OpenAI's; server-sent events with "stream": true
POST /v1/messages, /v1/messages/count_tokens                Anthropic's
POST /api/chat, /api/generate, /api/show; GET /api/tags, /api/ps, /api/version     Ollama's
GET  /v1/models, /v1/models/{id}
     {"object": "list", "data": [{"id", "object": "model", "created", "owned_by": "local",
      "streamoe": {"budget_bytes", "ctx_tokens", "vision": false, "kv", "thinking": bool}}]}
     thinking: whether the model's template has the switch. vision: whether images can be sent.

While a chat answer streams, comment lines tell of a prompt being read, and every 10 s that the server lives:
    : prefill {"done_tokens": 256, "total_tokens": 900, "cached_tokens": 0, "elapsed_s": 1.2}
    : keepalive
The last chunks carry "usage" (with stream_options.include_usage; its prompt_tokens_details.cached_tokens) and, on the
chunk with the finish_reason, the key
    "timings": {"ttft_s", "prefill_s", "decode_s", "tokens_per_s", "wait_s", "hit_rate", "read_bytes", "peak_bytes"}
(numbers or null). delta.reasoning_content is the thinking. An error after the first byte is
    data: {"error": {"message", "next_step", "type", "param", "code", ...its figures}}
and an error before it is the same object with a status of 4xx or 5xx. "code" is the error's name for programs
(ContextFull, QueueFull, ...); a 429 has the header Retry-After.

GET  /health   200 or, while loading, draining or failed, 503. Never needs the key.
     {"status": "ok" | "loading" | "draining" | "failed", "plan_ok": bool, "model": id, "nodes": [band, ...],
      "needs_key": bool, "error": null | {"code", "message", "next_step", ...}}
GET  /ready    200 when every band answers, else 503; the same object
GET  /metrics  Prometheus
GET  /openapi.json
GET  /api/telemetry   server-sent events, at most 5 a second (?once=1: one JSON object, no stream):
     {"schema": 1, "status": as above, "model": id, "time_s": float,
      "budget_bytes", "footprint_bytes", "peak_bytes",
      "plan": null | the object of `streamoe plan --json` ("items": [{"name", "bytes", "why"}], "slots", ...),
      "layers": {"layer": [..], "hit": [..], "guess": [..], "miss": [..], "wasted": [..], "bytes_read": [..],
                 "wait_s": [..]},        one number a layer, counted since the model was opened; take differences
      "tokens_run": int,                 since the model was opened, prompts included
      "tokens_per_s": float,             generated over the last second, all answers together
      "requests": {"running", "waiting", "max_running", "max_waiting"},
      "prefill": [{"id", "done_tokens", "total_tokens", "cached_tokens", "elapsed_s"}],
      "totals": {"requests", "prompt_tokens", "cached_tokens", "generated_tokens", "cancelled", "failed"},
      "checkpoints": {"count", "bytes", "budget_bytes"},
      "bands": [{"name", "first_layer", "last_layer", "state": "up" | "suspect" | "lost", "rtt_ms": null | float,
                 "budget_bytes", "footprint_bytes", "peak_bytes", "detail": str,
                 "plan": {"schema": 1, "budget_bytes", "items": [...], and for "local" the rest of the object}}]}
     bands: of one machine, one, named "local"; of several, "plan" above is null and the sums are over all bands.
     While loading, budget_bytes and plan are null, arrays are empty.

With --api-key every endpoint but /health, /ready and the page's own files wants `Authorization: Bearer KEY` or
`x-api-key: KEY`. EventSource cannot send headers: read /api/telemetry with fetch.

Static files of the page: serving/web/, mounted at / (index.html).
"""
