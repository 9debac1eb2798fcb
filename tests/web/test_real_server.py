"""The page on the real server with the embedded model, from end to end; and the fake server held against it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import comes_to
from tests.web.actions import ask, ask_and_wait, last_answer, picture, texts, wait_until_done
from tests.web.fake_server import FakeServer
from tests.web.real_server import RealServer, running

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

MIB = 1024**2
QUESTION = "Count from one to twenty in words."


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMOE_")}
    with running(tmp_path_factory.mktemp("serve"), kept, "--ctx", "1024") as server:
        yield server


@pytest.fixture
def real_page(watched: Page, real: RealServer) -> Page:
    watched.goto(real.url)
    watched.locator("#model", has_text="streamoe-embedded").wait_for()
    watched.locator("#panel[data-state=live]").wait_for()
    watched.click("#settings-open")
    watched.fill("[name=temperature]", "0")
    watched.fill("[name=maxTokens]", "16")
    watched.keyboard.press("Escape")
    return watched


def test_an_answer_comes_with_figures_and_the_panel_moves(real_page: Page, real: RealServer) -> None:
    gauge = real_page.locator(".gauge-bar")
    heat = real_page.locator(".heat")
    before = (gauge.get_attribute("aria-valuenow"), heat.evaluate("canvas => canvas.toDataURL()"))
    answer = ask_and_wait(real_page, QUESTION)
    assert answer.locator(".markdown").inner_text().strip()
    figures = answer.locator(".figures").inner_text()
    for part in ("16 tok", "tok/s", "TTFT", "hit", "MiB/tok", "peak", "ended at the token limit"):
        assert part in figures, figures
    real_page.get_by_text("over the last").wait_for()
    real_page.wait_for_timeout(500)
    after = (gauge.get_attribute("aria-valuenow"), heat.evaluate("canvas => canvas.toDataURL()"))
    assert after[0] != before[0]
    assert after[1] != before[1]
    real_page.locator("#status-text", has_text="idle").wait_for()
    snapshot = real.snapshot()
    cap = snapshot["budget_bytes"]
    assert real_page.locator(".gauge-text").inner_text() == (
        f"peak {snapshot['peak_bytes'] / MIB:.2f} MiB · cap {cap / MIB:.2f} MiB"
    )
    rows = [text.split("\n")[0] for text in texts(real_page, ".plan-rows li")]
    assert rows == [item["name"] for item in snapshot["plan"]["items"]]
    assert "within the cap" in real_page.locator("#gauge").inner_text()


def test_the_same_question_has_the_same_answer_and_the_conversation_goes_on(real_page: Page) -> None:
    first = ask_and_wait(real_page, QUESTION).locator(".markdown").inner_text()
    real_page.get_by_label("Regenerate").click()
    real_page.locator("#send[aria-label=Stop]").wait_for()
    wait_until_done(real_page)
    assert last_answer(real_page).locator(".markdown").inner_text() == first
    figures = ask_and_wait(real_page, "And what comes next?").locator(".figures").inner_text()
    assert "prompt tok reused" in figures, "an answer's state is gone on from"
    real_page.get_by_label("Edit message").click()
    ask_and_wait(real_page, "Say that again.")
    assert texts(real_page, ".question-text") == [QUESTION, "Say that again."]


def test_stop_frees_the_server(real_page: Page, real: RealServer) -> None:
    real_page.click("#settings-open")
    real_page.fill("[name=maxTokens]", "900")
    real_page.fill("[name=system]", "Always write very long answers.")
    real_page.keyboard.press("Escape")
    real.wait_until_idle()
    made = real.snapshot()["totals"]["cancelled"]
    ask(real_page, "Tell me a very long story.")
    real_page.locator(".streaming .markdown", has_text=" ").wait_for()
    real_page.get_by_text("1 running, 0 waiting").wait_for()
    real_page.click("#send")
    wait_until_done(real_page)
    assert "stopped" in last_answer(real_page).locator(".figures").inner_text()
    comes_to(lambda: real.snapshot()["totals"]["cancelled"], made + 1)
    real_page.get_by_text("0 running, 0 waiting").wait_for()


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(real_page: Page) -> None:
    real_page.seen.expected = ("400 (Bad Request)",)  # type: ignore[attr-defined]
    refusal = ask_and_wait(real_page, "word " * 3000).get_by_role("alert").inner_text()
    assert "1024" in refusal
    assert "ContextFull" in refusal
    assert ask_and_wait(real_page, "Hello").locator(".markdown").inner_text().strip()


def test_a_picture_is_refused_by_the_page_and_by_the_server(real_page: Page) -> None:
    real_page.seen.expected = ("400 (Bad Request)",)  # type: ignore[attr-defined]
    assert real_page.locator("#image").is_hidden()
    picture(real_page, "paste")
    real_page.locator("#notice").get_by_text("this model reads text only").wait_for()
    # A page that has not learned yet what the model can do sends the picture, and shows what the server says.
    real_page.evaluate(
        """async () => {
            const { streamChat } = await import("/api.js");
            const url = new OffscreenCanvas(2, 2);
            url.getContext("2d").fillRect(0, 0, 2, 2);
            const reader = new FileReader();
            reader.readAsDataURL(await url.convertToBlob());
            await new Promise((resolve) => { reader.onload = resolve; });
            const content = [{type: "image_url", image_url: {url: reader.result}}];
            const request = {model: "streamoe-embedded", messages: [{role: "user", content}]};
            const nothing = () => {};
            const listeners = {onPrefill: nothing, onText: nothing, onThinking: nothing};
            window.refused = await streamChat(request, "", new AbortController().signal, listeners)
                .then(() => "answered", (error) => [error.code, error.message]);
        }"""
    )
    assert real_page.evaluate("window.refused") == ["NotBuiltIn", "this model has no image encoder"]


def test_the_pages_files_are_checked_for_changes_each_time(watched: Page, real: RealServer) -> None:
    response = watched.goto(real.url)
    assert response is not None
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["content-security-policy"].startswith("default-src 'self'; ")
    watched.locator("#model", has_text="streamoe-embedded").wait_for()


@pytest.mark.parametrize("path", ["api/telemetry?once=1", "v1/models", "health"])
def test_the_fake_server_says_nothing_that_the_real_one_does_not(
    server: FakeServer, real: RealServer, path: str
) -> None:
    """Key for key and type for type, so that what passes on the one passes on the other."""
    fake = server.snapshot() if "telemetry" in path else RealServer(server.url).get(path)
    assert lacking(fake, real.get(path)) == []


def lacking(fake: Any, real: Any, place: str = "") -> list[str]:
    """Where the fake has a key or a kind of value that the real has not."""
    if isinstance(fake, dict) and isinstance(real, dict):
        missing = [f"{place}.{key}" for key in fake.keys() - real.keys()]
        return missing + [
            p for key in fake.keys() & real.keys() for p in lacking(fake[key], real[key], f"{place}.{key}")
        ]
    if isinstance(fake, list) and isinstance(real, list):
        return lacking(fake[0], real[0], f"{place}[0]") if fake and real else []
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (fake, real))
    return [] if is_number or type(fake) is type(real) else [f"{place}: {fake!r} and {real!r}"]
