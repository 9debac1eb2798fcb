"""What the page says when the server refuses, fails, opens, or is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.web.actions import ask, ask_and_wait, last_answer, wait_until_done
from tests.web.fake_server import Answer, FakeServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

TOO_LONG = {
    "code": "ContextFull",
    "message": "5120 tokens do not fit the planned context of 4096",
    "next_step": "open with --ctx 5120 or more, or shorten the conversation",
}


def expect(page: Page, *words: str) -> None:
    page.seen.expected = words  # type: ignore[attr-defined]


def test_a_refusal_shows_what_why_and_what_next(page: Page, server: FakeServer) -> None:
    expect(page, "400 (Bad Request)")
    server.answer = lambda _: Answer(refusal=(400, TOO_LONG))
    refusal = ask_and_wait(page, "a long text").get_by_role("alert").inner_text()
    for part in TOO_LONG.values():
        assert part in refusal
    server.answer = lambda _: Answer(["short"])
    ask_and_wait(page, "a short text")
    assert len(server.bodies[-1]["messages"]) == 1, "a question that was refused is not sent again"
    page.reload()
    page.get_by_text(TOO_LONG["message"]).wait_for()


def test_an_error_within_the_stream_keeps_what_came(page: Page, server: FakeServer) -> None:
    error = {"code": "ReadFailed", "message": "reading 65536 B failed", "next_step": "check the disk"}
    server.answer = lambda _: Answer(["a part "], error=error)
    answer = ask_and_wait(page, "read")
    assert answer.locator(".markdown").inner_text() == "a part "[:-1]
    assert "reading 65536 B failed" in answer.get_by_role("alert").inner_text()
    server.answer = lambda _: Answer(["whole"])
    page.get_by_label("Regenerate").click()
    page.get_by_text("whole").wait_for()
    assert page.get_by_role("alert").count() == 0


def test_a_server_that_dies_is_told_of_and_found_again(page: Page, server: FakeServer) -> None:
    expect(page, "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY")
    server.answer = lambda _: Answer(["a part"], hold=True)
    ask(page, "talk")
    page.get_by_text("a part").wait_for()
    server.stop()
    wait_until_done(page)
    assert "ConnectionLost" in last_answer(page).get_by_role("alert").inner_text()
    page.get_by_text("The server does not answer. Trying again…").wait_for()
    assert page.locator("#panel").get_attribute("data-state") == "lost"
    server.answer = lambda _: Answer(["back again"])
    server.start(server.port)
    page.locator("#banner").wait_for(state="hidden")
    assert ask_and_wait(page, "and now?").locator(".markdown").inner_text() == "back again"


def test_a_question_waits_until_the_model_is_open(watched: Page, server: FakeServer) -> None:
    expect(watched, "503")
    server.status = "loading"
    watched.goto(server.url)
    watched.get_by_text("The model is being opened.").wait_for()
    ask(watched, "early")
    watched.get_by_text("Waiting until the model is open").wait_for()
    watched.wait_for_timeout(900)
    assert not server.bodies
    server.status = "ok"
    watched.get_by_text("Hello.").wait_for()
    assert watched.locator("#banner").is_hidden()


def test_a_model_that_did_not_open_says_why(watched: Page, server: FakeServer) -> None:
    expect(watched, "503")
    server.status = "failed"
    watched.goto(server.url)
    watched.get_by_text("needs 183 MiB, cap is 100 MiB → --budget 183MiB").wait_for()
    ask(watched, "still there?")
    wait_until_done(watched)
    assert "PlanDoesNotFit" in last_answer(watched).get_by_role("alert").inner_text()


def test_a_key_is_asked_for_and_sent_with_everything(watched: Page, server: FakeServer) -> None:
    expect(watched, "401")
    server.needs_key = True
    watched.goto(server.url)
    watched.get_by_text("This server wants its API key").wait_for()
    watched.click("#banner-settings")
    watched.fill("[name=key]", "sesame")
    watched.keyboard.press("Escape")
    watched.locator("#model", has_text="fake-1b").wait_for()
    watched.locator("#panel[data-state=live]").wait_for()
    assert ask_and_wait(watched, "open").locator(".markdown").inner_text() == "Hello."
    assert server.headers[-1]["authorization"] == "Bearer sesame"
    assert watched.locator("#banner").is_hidden()
