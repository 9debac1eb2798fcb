"""What a person does on the page, in a test's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# A picture of 1200 x 300 pixels as a file of the browser's own, given to `use(file)`.
_WITH_PICTURE = """async ([kind, target]) => {
    const canvas = new OffscreenCanvas(1200, 300);
    const context = canvas.getContext("2d");
    context.fillStyle = "teal";
    context.fillRect(0, 0, 600, 300);
    const file = new File([await canvas.convertToBlob({type: "image/png"})], "teal.png", {type: "image/png"});
    const data = new DataTransfer();
    data.items.add(file);
    const options = {bubbles: true, cancelable: true};
    const event = kind === "paste"
        ? new ClipboardEvent("paste", {...options, clipboardData: data})
        : new DragEvent(kind, {...options, dataTransfer: data});
    document.querySelector(target).dispatchEvent(event);
}"""


def ask(page: Page, text: str) -> None:
    """Write and press Enter."""
    page.fill("#question", text)
    page.press("#question", "Enter")


def ask_and_wait(page: Page, text: str) -> Locator:
    """The finished answer."""
    ask(page, text)
    wait_until_done(page)
    return last_answer(page)


def wait_until_done(page: Page) -> None:
    """Until nothing streams."""
    page.locator("#send[aria-label=Send]").wait_for()
    assert page.locator(".streaming").count() == 0


def last_answer(page: Page) -> Locator:
    """The newest answer."""
    return page.locator(".answer").last


def picture(page: Page, kind: str) -> None:
    """Paste or drop a picture."""
    page.evaluate(_WITH_PICTURE, [kind, "#question"])


def wait_for(page: Page, is_so: Callable[[], bool]) -> None:
    """Until it is so; ten seconds at most."""
    for _ in range(500):
        if is_so():
            return
        page.wait_for_timeout(20)
    raise AssertionError("it never came to be so")


def texts(page: Page, selector: str) -> list[str]:
    """The texts of all that match."""
    return page.locator(selector).all_inner_texts()


def last_user_text(body: dict[str, Any]) -> Any:
    """What a request asks."""
    return body["messages"][-1]["content"]
