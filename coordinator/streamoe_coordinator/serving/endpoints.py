"""The answering endpoints, in one table: what the router, the description and the docs are made of."""

from __future__ import annotations

from dataclasses import dataclass

from .api import Api
from .api.anthropic_messages import AnthropicCountTokens, AnthropicMessages
from .api.ollama import OllamaChat, OllamaGenerate
from .api.openai_chat import OpenAIChat
from .api.openai_completions import OpenAICompletions
from .api.openai_responses import OpenAIResponses


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path that takes POST. runs: whether it makes an answer, or only counts tokens."""

    path: str
    title: str
    api: Api
    runs: bool = True


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("/v1/chat/completions", "OpenAI chat completions", OpenAIChat()),
    Endpoint("/v1/completions", "OpenAI completions", OpenAICompletions()),
    Endpoint("/v1/responses", "OpenAI responses", OpenAIResponses()),
    Endpoint("/v1/messages", "Anthropic messages", AnthropicMessages()),
    Endpoint("/v1/messages/count_tokens", "Anthropic token count", AnthropicCountTokens(), runs=False),
    Endpoint("/api/chat", "Ollama chat", OllamaChat()),
    Endpoint("/api/generate", "Ollama generate", OllamaGenerate()),
)
