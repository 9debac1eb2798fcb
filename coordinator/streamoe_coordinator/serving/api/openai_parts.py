"""What OpenAI's three endpoints share: sampling fields, messages, tools, forms.

Owns reading them into the words all APIs share. Refuses to know how answers are worded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BadRequest
from ..fields import Anything, Field, Flag, ListOf, Number, OneOf, Part, Text, Whole, wrong
from ..images import refuse_image
from ..request import Message, ResponseFormat, Tool, ToolChoice

MAX_STOPS, MAX_TOP_LOGPROBS, MAX_TOOLS = 16, 20, 128
# An effort is an upper bound of thinking, in tokens; a model that does not think keeps to every one.
THINKING_TOKENS = {"minimal": 128, "low": 512, "medium": 2048, "high": None, "xhigh": None}
EFFORTS = ("none", *THINKING_TOKENS)
_NAME_CHARS = 64

OBJECT = Anything({"type": "object"})

SAMPLING: tuple[Field, ...] = (
    Field("temperature", Number(0, 2), "0 takes the likeliest token; left out: the model's own"),
    Field("top_p", Number(0, 1, has_least=False), "left out: the model's own"),
    Field("top_k", Whole(0), "0 is off; not OpenAI's, but common"),
    Field("min_p", Number(0, 1), "not OpenAI's, but common"),
    Field("repetition_penalty", Number(0.01, 10), "1 is off; not OpenAI's; left out: the model's own"),
    Field("presence_penalty", Number(-2, 2), "on the answer's tokens"),
    Field("frequency_penalty", Number(-2, 2), "on the answer's tokens"),
    Field("seed", Whole(-(1 << 53) + 1), "the same seed gives the same answer, whoever else is served"),
)
STOP = Field(
    "stop",
    ListOf(Text(is_filled=True), MAX_STOPS, may_be_single=True),
    f"up to {MAX_STOPS}; not part of the answer; looked for in the content",
)
LOGIT_BIAS = Field("logit_bias", OBJECT, "token id to a number from -100 to 100")
STREAM = Field("stream", Flag(), "server-sent events")
STREAM_OPTIONS = Field(
    "stream_options",
    Part(
        (
            Field("include_usage", Flag(), "a last chunk with the usage"),
            Field("include_obfuscation", OneOf((False,)), "no padding is sent"),
        )
    ),
    "include_usage",
)
MODEL = Field("model", Text(), "the name in /v1/models, or an --alias", is_needed=True)
# Said by clients, without a meaning where nothing is stored and billed.
ACCEPTED: tuple[Field, ...] = (
    Field("metadata", OBJECT, "kept nowhere", "accepted"),
    Field("prompt_cache_key", Text(), "prompts are matched by their tokens", "accepted"),
    Field("prompt_cache_retention", Text(), "checkpoints stay while there is room", "accepted"),
    Field("safety_identifier", Text(), "used as `user` is"),
    Field("service_tier", OneOf(("auto", "default")), "there is one", "accepted"),
    Field("user", Text(), "whose turn it is: clients that wait are served in turn"),
)


def read_logit_bias(values: Mapping[str, Any]) -> tuple[tuple[int, float], ...] | None:
    """logit_bias, None where it is not given. Raises BadRequest."""
    if "logit_bias" not in values:
        return None
    read = []
    for token, bias in values["logit_bias"].items():
        if not (token.isascii() and token.isdecimal() and len(token) < 10):
            raise wrong("logit_bias", token, "token ids as keys")
        read.append((int(token), Number(-100, 100).read(bias, f"logit_bias.{token}")))
    return tuple(read)


def read_tools(listed: Sequence[Any], *, is_flat: bool = False) -> tuple[Tool, ...]:
    """Functions; is_flat: name and parameters beside "type", as in responses. Raises BadRequest for other tools."""
    tools = []
    for i, entry in enumerate(listed):
        place = f"tools[{i}]"
        if not isinstance(entry, dict) or entry.get("type") != "function":
            raise wrong(f"{place}.type", entry.get("type") if isinstance(entry, dict) else entry, '"function"')
        body = entry if is_flat else entry.get("function")
        if not isinstance(body, dict):
            raise wrong(f"{place}.function", body, "an object")
        name = body.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARS:
            raise wrong(f"{place}.name", name, f"a name of 1 to {_NAME_CHARS} characters")
        description, parameters = body.get("description") or "", body.get("parameters") or {}
        if not isinstance(description, str):
            raise wrong(f"{place}.description", description, "a text")
        if not isinstance(parameters, dict):
            raise wrong(f"{place}.parameters", parameters, "a JSON schema")
        tools.append(Tool(name, description, parameters, body.get("strict") is True))
    return tuple(tools)


def read_tool_choice(value: Any, *, is_flat: bool = False) -> ToolChoice:
    """auto, none, required, or a function by name. Raises BadRequest."""
    if value is None:
        return ToolChoice()
    if value in ("auto", "none", "required"):
        return ToolChoice(value)
    if isinstance(value, dict) and value.get("type") == "function":
        body = value if is_flat else value.get("function")
        if isinstance(body, dict) and isinstance(body.get("name"), str):
            return ToolChoice("named", body["name"])
    raise wrong("tool_choice", value, "auto, none, required, or a function by name")


def read_form(value: Any, param: str, *, is_flat: bool = False) -> ResponseFormat | None:
    """response_format, or responses' text.format. Raises BadRequest."""
    if value is None or value == {"type": "text"}:
        return None
    if not isinstance(value, dict) or value.get("type") not in ("json_object", "json_schema"):
        raise wrong(param, value, 'one of type "text", "json_object", "json_schema"')
    if value["type"] == "json_object":
        return ResponseFormat("json_object")
    body = value if is_flat else value.get("json_schema")
    if not isinstance(body, dict) or not isinstance(body.get("schema"), dict):
        raise wrong(f"{param}.schema", body, "a JSON schema")
    return ResponseFormat("json_schema", body["schema"], str(body.get("name") or ""))


def read_messages(listed: Sequence[Any]) -> tuple[Message, ...]:
    """A chat's messages as the chat template takes them. Raises BadRequest with the place."""
    return tuple(_message(entry, f"messages[{i}]") for i, entry in enumerate(listed))


def _message(entry: Any, place: str) -> Message:
    if not isinstance(entry, dict):
        raise wrong(place, entry, "an object with role and content")
    role = entry.get("role")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise wrong(f"{place}.role", role, "system, developer, user, assistant or tool")
    content = read_content(entry.get("content"), f"{place}.content", may_lack=role == "assistant")
    message: dict[str, Any] = {"role": "system" if role == "developer" else role, "content": content}
    if role == "assistant":
        thinking = entry.get("reasoning_content")
        if isinstance(thinking, str) and thinking:
            message["reasoning_content"] = thinking
        if entry.get("tool_calls"):
            message["tool_calls"] = _calls(entry["tool_calls"], f"{place}.tool_calls")
        if entry.get("function_call"):
            raise BadRequest("function_call is the old form of tool_calls", "use tool_calls", param=place)
    if role == "tool":
        if not isinstance(entry.get("tool_call_id"), str):
            raise wrong(f"{place}.tool_call_id", entry.get("tool_call_id"), "the id of the call it answers")
        message["tool_call_id"] = entry["tool_call_id"]
    if isinstance(entry.get("name"), str):
        message["name"] = entry["name"]
    return message


def read_content(value: Any, place: str, *, may_lack: bool = False) -> str:
    """A text, or a list of parts of text. Raises BadRequest, for images too."""
    if isinstance(value, str):
        return value
    if value is None and may_lack:
        return ""
    if not isinstance(value, list):
        raise wrong(place, value, "a text or a list of parts")
    return "".join(_part(part, f"{place}[{i}]") for i, part in enumerate(value))


def _part(part: Any, place: str) -> str:
    if not isinstance(part, dict):
        raise wrong(place, part, "a part with a type")
    kind, text = part.get("type"), part.get("text")
    if kind in ("text", "input_text", "output_text") and isinstance(text, str):
        return text
    if kind in ("image_url", "input_image"):
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        raise refuse_image(url if isinstance(url, str) else "", place)
    raise wrong(f"{place}.type", kind, "a part of type text")


def _calls(listed: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(listed, list):
        raise wrong(place, listed, "a list")
    calls = []
    for i, call in enumerate(listed):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise wrong(f"{place}[{i}]", call, "a function call with a name")
        arguments = read_arguments(function.get("arguments"), f"{place}[{i}].function.arguments")
        calls.append(tool_call(str(call.get("id") or ""), function["name"], arguments))
    return calls


def tool_call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A call as chat templates take it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def read_arguments(value: Any, place: str) -> dict[str, Any]:
    """Arguments, a JSON text or an object. Raises BadRequest."""
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except (ValueError, RecursionError) as error:
            raise wrong(place, value, "a JSON object as text") from error
    if not isinstance(value, dict):
        raise wrong(place, value, "a JSON object as text")
    return value


MESSAGE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {
            "anyOf": [
                {"type": "string"},
                {"type": "null"},
                {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}}},
            ]
        },
    },
}
