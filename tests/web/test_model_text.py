"""What a model writes, as the page shows it: markdown while it streams, and nothing that could do anything."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.actions import ask_and_wait, last_answer
from tests.web.fake_server import Answer, FakeServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

CORPUS = {
    "lists": "Intro:\n\n1. one\n2. two\n\n   more of two\n3. three\n\n- a\n\n- b\n  - c\n\nE.\n\n* [ ] op\n* [x] ok\n",
    "code": "Text\n\n```python\ndef f(x):\n    return x < 1\n\n# two\n```\n\nbetween\n\n~~~\nplain ``` fence\n~~~\n",
    "indented": "Text\n\n    indented\n\n    more\n\nback\n",
    "unclosed code": "Look:\n\n```js\nconst a = `x`;\n\n\nlet b",
    "table": "| a | b |\n|:--|--:|\n| 1 | `x` |\n| 2 | **y** |\n\nafter\n\nSetext\n======\n\nand\n\n---\n\nend",
    "quotes": "> one\n> two\n>\n> > inner\nlazy\n\n### Head\n\nline  \nbreak *em __strong__* ~~gone~~ H<sub>2</sub>O\n",
    "late links": "See [the page][1] and ![pic][1].\n\nMore.\n\nMore still.\n\n[1]: https://example.com/page 'Title'\n",
    "crlf": "one\r\n\r\n- two\r\n- three\r\n\r\nfour\r\n",
    "loose": "1. a\n\n\n2. b\n\n\nText\n\n+ x\n\n      code in x\n\nend \\*not em\\* &amp; &lt;\n",
}
FRAGMENTS = [
    *("word ", "*em* ", "`code` ", "\n", "\n\n", "- item\n", "  - inner\n", "1. one\n", "2) two\n", "\n   more\n"),
    *("> quote\n", "# head\n", "---\n", "===\n", "```py\n", "```\n", "~~~\n", "    indented\n", "| a | b |\n|--|--|\n"),
    *(
        "| 1 | 2 |\n",
        "<b>bold</b> ",
        "<div>\n",
        "</div>\n",
        "[link](https://example.com) ",
        "\\",
        "* * *\n",
        "+ plus\n",
    ),
]

ATTACKS = """
<script>window.pwned = 1</script>
<img src=x onerror="window.pwned = 2">
<img src="https://evil.example/a.png">
![remote](https://evil.example/b.png) ![data](data:image/svg+xml;base64,PHN2Zz48L3N2Zz4=)
[script](javascript:window.pwned=3) [data](data:text/html,<script>window.pwned=4</script>) [vb](vbscript:x)
[spaced](java\tscript:window.pwned=5) [own](/v1/models) [file](file:///etc/passwd) <javascript:window.pwned=6>
<a href="javascript:window.pwned=7" onclick="window.pwned=8" style="position:fixed;inset:0">click</a>
<svg onload="window.pwned=9"><animate onbegin="window.pwned=10"/></svg><iframe src="https://evil.example"></iframe>
<form action="https://evil.example"><input name=a autofocus onfocus="window.pwned=11"></form>
<style>body { display: none }</style><link rel=stylesheet href="https://evil.example/c.css"><base href="https://evil.example">
<details open ontoggle="window.pwned=12"><summary>x</summary></details> <b onmouseover="window.pwned=13">bold</b>
<meta http-equiv=refresh content="0;url=https://evil.example"><object data="https://evil.example"></object>
<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.pwned=14&gt;">

```"><img src=x onerror=window.pwned=15>
</code></pre><script>window.pwned = 16</script>
```

```html
<script>window.pwned = 17</script>
```

| <img src=x onerror=window.pwned=18> |
|---|
| [x](javascript:alert`1`) |
"""

# A frame after each piece, without a frame's wait.
_WHOLE_AND_STREAMED = """async ([text, pieces]) => {
    window.requestAnimationFrame = (draw) => { queueMicrotask(draw); return 1; };
    const { StreamedMarkdown, renderMarkdown } = await import("/markdown.js");
    const [whole, streamed] = [document.createElement("div"), document.createElement("div")];
    renderMarkdown(whole, text.replaceAll("\\r", ""));
    const stream = new StreamedMarkdown(streamed);
    for (const piece of pieces) {
        stream.push(piece);
        await new Promise((resolve) => queueMicrotask(resolve));
    }
    stream.finish();
    const blocks = (element) => [...element.children].map((child) => child.outerHTML.trim());
    return [blocks(whole), blocks(streamed), stream.text];
}"""


@pytest.mark.parametrize("name", CORPUS)
def test_streamed_text_becomes_the_same_as_whole_text(page: Page, name: str) -> None:
    text = CORPUS[name]
    for size in (1, 7):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        whole, streamed, kept = page.evaluate(_WHOLE_AND_STREAMED, [text, pieces])
        assert streamed == whole
        assert len(whole) >= 2
        assert kept == text.replace("\r", "")


def test_any_mixture_of_blocks_streams_to_the_same(page: Page) -> None:
    chance = random.Random(20240)
    for _ in range(40):
        text = "".join(chance.choices(FRAGMENTS, k=chance.randint(3, 14)))
        cuts = sorted({0, len(text), *(chance.randrange(len(text) + 1) for _ in range(25))})
        pieces = [text[start:end] for start, end in itertools.pairwise(cuts)]
        whole, streamed, _ = page.evaluate(_WHOLE_AND_STREAMED, [text, pieces])
        assert streamed == whole, text


def test_finished_blocks_are_never_drawn_again(page: Page, server: FakeServer) -> None:
    server.answer = lambda _: Answer([f"paragraph {n}\n\n" for n in range(12)], pause_s=0.03)
    page.evaluate(
        """() => new MutationObserver((records) => {
            for (const record of records) for (const node of record.removedNodes) {
                if (node.textContent.startsWith("paragraph 3")) window.num_removed = (window.num_removed ?? 0) + 1;
            }
        }).observe(document.getElementById("turns"), {childList: true, subtree: true})"""
    )
    answer = ask_and_wait(page, "go")
    assert answer.locator("p").count() == 12
    # While it is one of the last two blocks it is drawn anew, a few times; then it stays.
    assert page.evaluate("window.num_removed ?? 0") <= 4


def test_code_has_its_label_and_colours(page: Page, server: FakeServer) -> None:
    server.answer = lambda _: Answer(["```python\ndef f():\n    return 'x'\n```\n\n```brainfuck\n+++\n```\n"])
    answer = ask_and_wait(page, "write")
    assert answer.locator(".code-language").all_inner_texts() == ["python", "brainfuck"]
    assert answer.locator(".hljs-keyword").all_inner_texts() == ["def", "return"]
    assert answer.locator("pre").nth(1).locator("span").count() == 0


def test_all_twelve_languages_colour(page: Page) -> None:
    samples: dict[str, Any] = page.evaluate(
        """async () => {
            const { hljs } = await import("/libraries.js");
            const text = "select if { a: 1, b: 'x' } // <a> $x \\"y\\" \\n- k: 2\\n";
            const coloured = (name) => [name, hljs.highlight(text, {language: name}).value];
            return Object.fromEntries(hljs.listLanguages().map(coloured));
        }"""
    )
    assert len(samples) == 12
    assert all("<span" in value for value in samples.values()), samples


def test_attacks_in_a_models_text_are_inert(page: Page, server: FakeServer) -> None:
    server.answer = lambda _: Answer(list(ATTACKS), thinking=["<img src=x onerror=window.pwned=20>"])
    answer = ask_and_wait(page, "<img src=x onerror=window.pwned=21>")
    answer.get_by_text("bold", exact=False).first.wait_for()
    page.wait_for_timeout(300)
    assert page.evaluate("window.pwned") is None
    tags = set(answer.locator("*").evaluate_all("all => all.map((element) => element.localName)"))
    own = {"article", "div", "span", "button", "svg", "use", "details", "summary"}
    allowed = {"p", "a", "pre", "code", "table", "thead", "tbody", "tr", "th", "td", "b", "br"}
    assert tags <= own | allowed, tags - own - allowed
    names = answer.locator(".markdown *").evaluate_all("all => all.flatMap((element) => element.getAttributeNames())")
    assert not {name for name in names if name.startswith("on") or name in ("style", "src", "action", "id")}, names
    of_link = "(link) => [link.getAttribute('href'), link.rel, link.target]"
    links = answer.locator("a").evaluate_all(f"all => all.map({of_link})")
    assert links
    assert all(href is None or href.startswith("https://evil.example/") for href, _, _ in links), links
    assert all((rel, target) == ("noopener noreferrer nofollow", "_blank") for _, rel, target in links)
    assert "<script>window.pwned = 1</script>" in answer.inner_text(), "what the model wrote is there to read"
    page.reload()
    last_answer(page).locator("table").wait_for()
    assert page.evaluate("window.pwned") is None


def test_the_policy_stops_what_the_sanitiser_would_let_through(page: Page) -> None:
    """The second wall: even a script that reached the document would not run, nor an image load."""
    page.seen.expected = ("Content Security Policy", "violates")  # type: ignore[attr-defined]
    page.evaluate(
        """() => {
            document.body.insertAdjacentHTML("beforeend", "<b id=probe onclick='window.pwned = 1'>x</b>");
            document.getElementById("probe").click();
            const image = new Image();
            image.src = "https://evil.example/x.png";
            return new Promise((resolve) => { image.onerror = resolve; });
        }"""
    )
    assert page.evaluate("window.pwned") is None
    page.seen.hosts.discard("evil.example")  # type: ignore[attr-defined]
