"""How the page fits: a narrow screen, both themes, the keyboard alone; and the pictures for the docs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.web.actions import ask_and_wait
from tests.web.fake_server import Answer, FakeServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

LONG = (
    "A very long word: " + "x" * 300 + " and a link https://example.com/" + "y" * 200 + "\n\n"
    "```python\n" + "value = " + "1 + " * 80 + "1\n```\n\n"
    "| " + " | ".join(f"column {n}" for n in range(12)) + " |\n" + "|--" * 12 + "|\n" + "| cell " * 12 + "|\n\n"
    "`" + "c" * 200 + "`\n\n1. " + "z" * 200 + "\n\n> " + "q" * 200
)
REFUSED = {"code": "ContextFull", "message": "m" * 300, "next_step": "--ctx " + "9" * 200}


@pytest.fixture
def narrow(page: Page) -> Iterator[Page]:
    page.set_viewport_size({"width": 360, "height": 640})
    yield page


def overflow(page: Page) -> list[str]:
    """Elements that reach beyond the right edge, save within what scrolls sideways by itself."""
    return page.evaluate(  # type: ignore[no-any-return]
        """() => [...document.querySelectorAll("body *")].filter((element) => {
            const box = element.getBoundingClientRect();
            const scrolls = element.closest("pre, .table-frame") && !element.matches("pre, .table-frame");
            return box.width > 0 && box.right > innerWidth + 0.5 && !scrolls && !element.closest("svg");
        }).map((element) => element.outerHTML.slice(0, 80))"""
    )


def test_nothing_scrolls_sideways_on_a_narrow_screen(narrow: Page, server: FakeServer) -> None:
    narrow.seen.expected = ("400 (Bad Request)",)  # type: ignore[attr-defined]
    width = "Math.max(document.documentElement.scrollWidth, document.getElementById('scroll').scrollWidth)"
    assert (narrow.evaluate(width), overflow(narrow)) == (360, [])
    server.answer = lambda _: Answer([LONG], thinking=["t" * 300], prefill=[(100_000, 900_000, 3.0)])
    ask_and_wait(narrow, "a" * 300).locator("summary").click()
    assert (narrow.evaluate(width), overflow(narrow)) == (360, [])
    server.answer = lambda _: Answer(refusal=(400, REFUSED))
    ask_and_wait(narrow, "too long")
    assert (narrow.evaluate(width), overflow(narrow)) == (360, [])
    for opener in ("#settings-open", "#history-open"):
        narrow.click(opener)
        assert overflow(narrow) == []
        narrow.keyboard.press("Escape")
    narrow.click("#panel-toggle")
    assert narrow.locator("#gauge").is_visible()
    assert overflow(narrow) == []
    narrow.keyboard.press("Escape")
    assert narrow.locator("#gauge").is_hidden()
    narrow.click("#status-line")
    assert narrow.locator("#gauge").is_visible()
    narrow.click("#panel-close")
    assert narrow.locator("#gauge").is_hidden()


def test_what_one_presses_is_large_enough_on_a_narrow_screen(narrow: Page) -> None:
    sizes = narrow.locator(".top button[title], .top summary, #send").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect()).map((box) => Math.min(box.width, box.height))"
    )
    assert len(sizes) == 7
    assert min(sizes) >= 36


BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def test_dark_and_light_follow_the_system_until_one_is_chosen(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    light = page.evaluate(BACKGROUND)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(BACKGROUND)
    assert light != dark
    page.click("#theme")
    assert page.evaluate(BACKGROUND) == light
    page.reload()
    assert page.evaluate(BACKGROUND) == light, "the choice is kept"
    page.click("#theme")
    assert page.evaluate(BACKGROUND) == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(page: Page, server: FakeServer, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    code = "```python\n# note\nclass A:\n    x: int = f('s') + 1\n```\n"
    server.answer = lambda _: Answer([f"Text `code` [link](https://example.com)\n\n> quote\n\n{code}"], thinking=["t"])
    ask_and_wait(page, "hello")
    low: list[list[str]] = page.evaluate(_LOW_CONTRAST)
    assert low == []


# Texts whose contrast with what lies behind them is below WCAG's 4.5 to 1, whatever is disabled left out.
_LOW_CONTRAST = """() => {
    const context = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
    const behind = (element) => {
        const chain = [];
        for (let at = element; at; at = at.parentElement) chain.unshift(getComputedStyle(at).backgroundColor);
        return chain;
    };
    const paint = (colours) => {
        context.clearRect(0, 0, 1, 1);
        for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
        const linear = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((byte) => {
            const share = byte / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const found = [];
    for (const element of document.querySelectorAll("body *")) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !element.checkVisibility() || element.closest(":disabled, [hidden], dialog")) continue;
        const back = behind(element);
        const [a, b] = [paint(back), paint([...back, getComputedStyle(element).color])];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) found.push([element.textContent.slice(0, 30), element.className, ratio.toFixed(2)]);
    }
    return found;
}"""


def test_the_keyboard_reaches_everything(page: Page, server: FakeServer) -> None:
    server.answer = lambda _: Answer(["done"], thinking=["t"])
    ask_and_wait(page, "hello")
    page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        active = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText.split('\\n')[0]"
        reached.add(page.evaluate(f"document.activeElement === document.body ? 'body' : ({active})"))
    named = {"New chat", "Conversations", "Export", "Light or dark", "Settings", "Memory and speed", "Copy message"}
    named |= {"Edit message", "Copy answer", "Regenerate", "Your message", "runtime", "hot tier"}
    assert named <= reached, named - reached
    assert any(label.startswith("Thought for") for label in reached)
    assert any(label.startswith("Where each layer") for label in reached)


def test_every_button_and_field_has_a_name(page: Page) -> None:
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, summary, input, textarea, select")].filter((one) =>
            one.type !== "file" && !(one.ariaLabel || one.textContent.trim() || one.closest("label"))
        ).map((one) => one.outerHTML)"""
    )
    assert nameless == []


def test_no_motion_for_those_who_want_none(page: Page) -> None:
    durations = page.evaluate(
        """() => [...document.querySelectorAll("*")].map((one) => getComputedStyle(one))
            .filter((style) => style.animationName !== "none" || parseFloat(style.transitionDuration) > 0).length"""
    )
    assert durations == 0
