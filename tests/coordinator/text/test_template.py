"""Chat templates: what Hugging Face's need, and what a hostile one must not get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamoe_coordinator.text.template import ChatTemplate, find_template
from streamoe_engine.errors import ChatTemplateUnusable

HELLO = [{"role": "user", "content": "hello"}]


def render(source: str, **special_tokens: str) -> str:
    return ChatTemplate(source, special_tokens).render(HELLO)


def test_the_embedded_models_template(embedded_checkpoint: Path) -> None:
    source = find_template(embedded_checkpoint)
    assert source is not None
    assert render(source).endswith("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")


def test_blocks_are_trimmed_as_the_models_were_trained() -> None:
    assert (
        render("{% for m in messages %}\n    {% if true %}\n{{ m.content }}!\n    {% endif %}\n{% endfor %}\n")
        == "hello!\n"
    )


def test_names_and_filters_templates_expect() -> None:
    assert render("{{ bos_token }}{{ add_generation_prompt }}{{ tools }}", bos_token="<s>") == "<s>TrueNone"
    assert render("{{ {'b': '<é>', 'a': 1} | tojson }}") == '{"b": "<é>", "a": 1}'
    assert len(render("{{ strftime_now('%Y') }}")) == 4
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert render("{% generation %}x{{ messages[0].content }}{% endgeneration %}") == "xhello"


@pytest.mark.parametrize(("thinking", "shown"), [(None, "own choice"), (True, "yes"), (False, "no")])
def test_thinking_is_left_to_the_template_unless_chosen(thinking: bool | None, shown: str) -> None:
    source = "{% if enable_thinking is not defined %}own choice{% elif enable_thinking %}yes{% else %}no{% endif %}"
    assert ChatTemplate(source, {}).render(HELLO, thinking=thinking) == shown


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages.append({'role': 'user', 'content': 'x'}) }}",
        "{{ '{0.__class__.__init__}'.format(messages) }}{{ [].__class__() }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
    ],
)
def test_a_hostile_template_is_refused(source: str) -> None:
    with pytest.raises(ChatTemplateUnusable, match="fails on this conversation"):
        render(source)


def test_a_template_sees_no_files() -> None:
    with pytest.raises(ChatTemplateUnusable):
        render("{% include '/etc/passwd' %}")


@pytest.mark.parametrize("source", ["{% if %}", "{{ messages[", "{% endfor %}"])
def test_a_source_that_is_no_template_is_refused(source: str) -> None:
    with pytest.raises(ChatTemplateUnusable, match="cannot be read"):
        ChatTemplate(source, {})


def test_the_templates_own_objection_is_passed_on() -> None:
    with pytest.raises(ChatTemplateUnusable, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize("source", ["{{ messages[0].content + 1 }}", "{{ 1 / 0 }}", "{{ messages[5].content }}"])
def test_a_templates_own_mistakes_are_told(source: str) -> None:
    with pytest.raises(ChatTemplateUnusable, match="fails on this conversation"):
        render(source)


def test_where_the_template_is_looked_for(tmp_path: Path) -> None:
    assert find_template(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "one"}))
    assert find_template(tmp_path) == "one"
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "two"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert find_template(tmp_path) == "two"
    (tmp_path / "chat_template.jinja").write_text("three")
    assert find_template(tmp_path) == "three"
