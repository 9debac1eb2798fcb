"""Pictures: pasted, dropped, made small; and what a model that cannot see gets."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.web.actions import ask, ask_and_wait, last_user_text, picture, wait_until_done
from tests.web.fake_server import FakeServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture
def seeing(watched: Page, server: FakeServer) -> Page:
    server.vision = True
    watched.goto(server.url)
    watched.locator("#image").wait_for()
    return watched


def test_a_model_that_cannot_see_is_not_offered_pictures(page: Page, server: FakeServer) -> None:
    assert page.locator("#image").is_hidden()
    for kind in ("paste", "drop"):
        picture(page, kind)
        page.locator("#notice").get_by_text("this model reads text only").wait_for()
        assert page.locator(".preview").count() == 0
        ask_and_wait(page, "only text")
        assert last_user_text(server.bodies[-1]) == "only text"
        assert page.locator("#notice .refusal").count() == 0, "the notice goes with the question"


@pytest.mark.parametrize("kind", ["paste", "drop"])
def test_a_picture_is_made_small_and_sent_as_data(seeing: Page, server: FakeServer, kind: str) -> None:
    picture(seeing, kind)
    seeing.locator(".preview img").wait_for()
    ask_and_wait(seeing, "what is this?")
    image, text = last_user_text(server.bodies[-1])
    assert text == {"type": "text", "text": "what is this?"}
    head, data = image["image_url"]["url"].split(",")
    assert (image["type"], head) == ("image_url", "data:image/png;base64")
    sent = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    assert sent.size == (640, 160)
    assert sent.getpixel((100, 80)) == (0, 128, 128)
    assert seeing.locator(".question img").count() == 1
    assert seeing.locator(".preview").count() == 0


def test_files_can_be_chosen_and_taken_away_again(seeing: Page, server: FakeServer) -> None:
    jpeg = io.BytesIO()
    Image.new("RGB", (80, 60), "red").save(jpeg, "JPEG")
    files = [{"name": f"{n}.jpg", "mimeType": "image/jpeg", "buffer": jpeg.getvalue()} for n in range(2)]
    seeing.set_input_files("#image-file", files)  # type: ignore[arg-type]
    seeing.locator(".preview").nth(1).wait_for()
    seeing.get_by_label("Remove picture 1").click()
    assert seeing.locator(".preview").count() == 1
    assert seeing.locator("#send").is_enabled(), "a picture alone can be sent"
    seeing.press("#question", "Enter")
    wait_until_done(seeing)
    (image,) = last_user_text(server.bodies[-1])
    assert image["image_url"]["url"].startswith("data:image/jpeg;base64,")


def test_a_file_that_is_no_picture_is_refused(seeing: Page, server: FakeServer) -> None:
    bad = {"name": "notes.png", "mimeType": "image/png", "buffer": b"not a picture"}
    seeing.set_input_files("#image-file", bad)  # type: ignore[arg-type]
    seeing.locator("#notice").get_by_text("notes.png is no picture").wait_for()
    assert seeing.locator(".preview").count() == 0


def test_a_question_with_a_picture_can_be_edited(seeing: Page, server: FakeServer) -> None:
    picture(seeing, "paste")
    seeing.locator(".preview").wait_for()
    ask_and_wait(seeing, "waht?")
    seeing.get_by_label("Edit message").click()
    assert seeing.locator(".preview").count() == 1
    ask(seeing, "what?")
    wait_until_done(seeing)
    assert last_user_text(server.bodies[-1])[1]["text"] == "what?"
    assert last_user_text(server.bodies[-1])[0] == last_user_text(server.bodies[0])[0]
