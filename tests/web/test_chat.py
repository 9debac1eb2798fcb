"""A conversation on the page: send, stream, stop, edit, ask again, keep, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.actions import ask, ask_and_wait, last_answer, last_user_text, texts, wait_for, wait_until_done
from tests.web.fake_server import Answer, FakeServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]


def test_an_answer_streams_in_and_ends_with_its_figures(page: Page, server: FakeServer) -> None:
    server.answer = lambda _: Answer(["one ", "two ", "three"], hold=True, pause_s=0.05)
    ask(page, "count")
    page.get_by_text("one two three").wait_for()
    assert page.locator("#send").get_attribute("aria-label") == "Stop"
    assert page.locator("#question").input_value() == ""
    assert last_answer(page).locator(".markdown").get_attribute("aria-busy") == "true"
    assert "tok" in last_answer(page).locator(".figures").inner_text()
    page.click("#send")
    wait_until_done(page)
    server.answer = lambda _: Answer(["four"])
    figures = ask_and_wait(page, "go on").locator(".figures").inner_text()
    assert figures == "1 tok · 31.4 tok/s · TTFT 0.2 s · hit 64% · read 8.6 MiB/tok · peak 171/192 MiB"
    assert [message["role"] for message in server.bodies[-1]["messages"]] == ["user", "assistant", "user"]
    assert server.bodies[-1]["messages"][1]["content"] == "one two three"
    assert server.bodies[-1].keys() == {"model", "messages", "stream", "stream_options"}


@pytest.mark.parametrize("way", ["button", "escape"])
def test_stopping_closes_the_request_and_keeps_what_came(page: Page, server: FakeServer, way: str) -> None:
    server.answer = lambda _: Answer(["only this"], hold=True)
    ask(page, "talk")
    page.get_by_text("only this").wait_for()
    page.click("#send") if way == "button" else page.keyboard.press("Escape")
    wait_until_done(page)
    wait_for(page, lambda: (server.num_cancelled, server.num_running) == (1, 0))
    assert "stopped" in last_answer(page).locator(".figures").inner_text()
    assert last_answer(page).locator(".markdown").inner_text() == "only this"


def test_the_last_message_can_be_edited_and_takes_its_answer_along(page: Page, server: FakeServer) -> None:
    server.answer = lambda body: Answer([f"echo {last_user_text(body)}"])
    ask_and_wait(page, "first")
    ask_and_wait(page, "secnd")
    page.get_by_label("Edit message").click()
    assert page.locator("#question").input_value() == "secnd"
    assert page.locator("#editing").is_visible()
    ask_and_wait(page, "second")
    assert texts(page, ".question-text") == ["first", "second"]
    assert texts(page, ".markdown") == ["echo first", "echo second"]
    contents = [message["content"] for message in server.bodies[-1]["messages"]]
    assert contents == ["first", "echo first", "second"]


def test_an_edit_can_be_given_up(page: Page, server: FakeServer) -> None:
    ask_and_wait(page, "first")
    page.get_by_label("Edit message").click()
    page.keyboard.press("Escape")
    assert page.locator("#question").input_value() == ""
    assert page.locator("#editing").is_hidden()
    assert texts(page, ".question-text") == ["first"]


def test_regenerate_asks_the_same_again(page: Page, server: FakeServer) -> None:
    server.answer = lambda _: Answer([f"answer {len(server.bodies)}"])
    ask_and_wait(page, "first")
    ask_and_wait(page, "second")
    assert page.get_by_label("Regenerate").count() == 1
    page.get_by_label("Regenerate").click()
    page.get_by_text("answer 3").wait_for()
    wait_until_done(page)
    assert texts(page, ".markdown") == ["answer 1", "answer 3"]
    assert server.bodies[2]["messages"] == server.bodies[1]["messages"]


def test_enter_sends_shift_enter_does_not_nor_does_an_input_method(page: Page, server: FakeServer) -> None:
    page.fill("#question", "a line")
    page.press("#question", "Shift+Enter")
    page.keyboard.type("another")
    composing = 'new KeyboardEvent("keydown", {key: "Enter", isComposing: true, bubbles: true, cancelable: true})'
    page.locator("#question").evaluate(f"element => element.dispatchEvent({composing})")
    assert not server.bodies
    page.press("#question", "Enter")
    wait_until_done(page)
    assert last_user_text(server.bodies[0]) == "a line\nanother"
    page.press("#question", "Enter")
    assert len(server.bodies) == 1, "an empty field sends nothing"


def test_thinking_is_folded_and_timed(page: Page, server: FakeServer) -> None:
    server.answer = lambda _: Answer(["Forty-two."], thinking=["Let me ", "see <b>."], pause_s=0.05)
    answer = ask_and_wait(page, "the question")
    assert answer.locator("summary").inner_text().startswith("Thought for 0.")
    assert not answer.locator(".thoughts").is_visible()
    answer.locator("summary").click()
    assert answer.locator(".thoughts").inner_text() == "Let me see <b>."
    assert answer.locator(".markdown").inner_text() == "Forty-two."
    ask_and_wait(page, "and?")
    assert server.bodies[-1]["messages"][1] == {"role": "assistant", "content": "Forty-two."}


def test_a_long_prompt_shows_how_far_it_is(page: Page, server: FakeServer) -> None:
    chunks = [(0, 900, 0.0), (256, 900, 0.1), (512, 900, 2.0)]
    server.answer = lambda _: Answer([], prefill=chunks, pause_s=0.1, hold=True)
    page.evaluate(
        """() => new MutationObserver((records) => {
            const added = records.flatMap((record) => [...record.addedNodes]);
            window.told = [...window.told, ...added.map((node) => node.textContent)];
        }).observe(document.getElementById("turns"), {childList: true, subtree: true}, window.told = [])"""
    )
    ask(page, "a long text")
    page.get_by_text("Reading the prompt · 512 of 900 tokens · 1.5 s left", exact=True).wait_for()
    told = [text for text in page.evaluate("window.told") if text.startswith("Reading")]
    assert told == [
        "Reading the prompt · 0 of 900 tokens",
        "Reading the prompt · 256 of 900 tokens",
        "Reading the prompt · 512 of 900 tokens · 1.5 s left",
    ]
    assert page.locator("progress").evaluate("bar => bar.value / bar.max") == pytest.approx(512 / 900)
    page.keyboard.press("Escape")
    wait_until_done(page)
    assert page.locator("progress").count() == 0


def test_a_conversation_outlives_a_reload_and_others_can_be_opened(page: Page, server: FakeServer) -> None:
    server.answer = lambda body: Answer([f"about {last_user_text(body)}"], thinking=["hm"])
    ask_and_wait(page, "apples")
    page.click("#new-chat")
    assert page.locator("#welcome").is_visible()
    ask_and_wait(page, "pears")
    page.reload()
    page.get_by_text("about pears").wait_for()
    assert last_answer(page).locator("summary").inner_text().startswith("Thought for")
    page.click("#history-open")
    assert texts(page, ".history-title span") == ["pears", "apples"]
    page.locator(".history-title", has_text="apples").click()
    page.get_by_text("about apples").wait_for()
    ask_and_wait(page, "more")
    assert [m["content"] for m in server.bodies[-1]["messages"]] == ["apples", "about apples", "more"]
    page.click("#history-open")
    page.get_by_label("Delete “pears”").click()
    assert texts(page, ".history-title span") == ["apples"]


def test_a_reload_in_the_middle_keeps_what_came_and_frees_the_server(page: Page, server: FakeServer) -> None:
    server.answer = lambda _: Answer(["a part"], hold=True)
    ask(page, "talk")
    page.get_by_text("a part").wait_for()
    page.reload()
    page.get_by_text("a part").wait_for()
    assert last_answer(page).locator(".figures").inner_text().endswith(("interrupted", "stopped"))
    assert page.get_by_role("alert").count() == 0, "it was not the server's fault"
    wait_for(page, lambda: (server.num_cancelled, server.num_running) == (1, 0))
    server.answer = lambda _: Answer(["the whole"])
    page.get_by_label("Regenerate").click()
    page.get_by_text("the whole").wait_for()


def test_export_gives_the_whole_conversation(page: Page, server: FakeServer, tmp_path: Path) -> None:
    server.answer = lambda _: Answer(["Red\n\nand *green*"], thinking=["hm"])
    ask_and_wait(page, "apples")
    saved = {}
    for kind in ("json", "md"):
        page.click("#export summary")
        with page.expect_download() as download:
            page.click(f"#export-{kind}")
        download.value.save_as(tmp_path / kind)
        saved[kind] = (tmp_path / kind).read_text()
    turn = json.loads(saved["json"])["turns"][0]
    assert turn["user"] == {"text": "apples", "images": []}
    assert (turn["assistant"]["text"], turn["assistant"]["thinking"]) == ("Red\n\nand *green*", "hm")
    assert saved["md"] == "# apples\n\nModel: fake-1b\n\n## You\n\napples\n\n## Model\n\nRed\n\nand *green*\n"


def test_copy_takes_the_markdown(page: Page, server: FakeServer) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    server.answer = lambda _: Answer(["**bold**\n\n```python\nx = 1\n```\n"])
    answer = ask_and_wait(page, "write")
    answer.get_by_label("Copy answer").click()
    wait_for(page, lambda: page.evaluate("navigator.clipboard.readText()") == "**bold**\n\n```python\nx = 1\n```\n")
    answer.get_by_label("Copy code").click()
    wait_for(page, lambda: page.evaluate("navigator.clipboard.readText()") == "x = 1\n")


def test_settings_are_sent_kept_and_cleared(page: Page, server: FakeServer) -> None:
    page.click("#settings-open")
    values = {"system": "Be brief.", "temperature": "0", "topP": "0.9", "maxTokens": "50", "seed": "7"}
    for name, value in values.items():
        page.fill(f"[name={name}]", value)
    page.select_option("[name=thinking]", "off")
    page.keyboard.press("Escape")
    page.reload()
    ask_and_wait(page, "hello")
    body = server.bodies[-1]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["temperature"], body["top_p"], body["max_completion_tokens"], body["seed"]) == (0, 0.9, 50, 7)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    page.click("#settings-open")
    page.get_by_text("Clear all").click()
    page.keyboard.press("Escape")
    ask_and_wait(page, "again")
    assert server.bodies[-1].keys() == {"model", "messages", "stream", "stream_options"}


def test_the_end_is_followed_only_by_a_reader_who_is_there(page: Page, server: FakeServer) -> None:
    where = "element => element.scrollHeight - element.scrollTop - element.clientHeight"
    server.answer = lambda _: Answer([f"line {n}\n\n" for n in range(60)], hold=True, pause_s=0.02)
    ask(page, "count")
    page.get_by_text("line 20", exact=True).wait_for()
    page.wait_for_timeout(100)
    assert page.locator("#scroll").evaluate(where) < 60
    page.hover("#turns")
    page.mouse.wheel(0, -500)
    page.get_by_text("line 59", exact=True).wait_for(state="attached")
    assert page.locator("#scroll").evaluate(where) > 300
    page.click("#to-end")
    assert page.locator("#scroll").evaluate(where) < 60
    assert page.locator("#to-end").is_hidden()
