"""The pictures of the page in the docs: the real server, the embedded model, light and dark and narrow.

STREAMOE_SCREENSHOTS=docs/images python -m pytest -m slow tests/web/test_screenshots.py     draws them anew
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from tests.web.actions import ask_and_wait
from tests.web.real_server import RealServer, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

QUESTIONS = ("What is the capital of France?", "Write a Python function that adds two numbers.")
PICTURES = {
    "page-light": ("light", 1280, 880),
    "page-dark": ("dark", 1280, 880),
    "page-narrow": ("dark", 390, 800),
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMOE_")}
    with running(tmp_path_factory.mktemp("serve"), kept) as server:
        yield server


@pytest.mark.parametrize("name", PICTURES)
def test_the_page_is_drawn(browser: Browser, real: RealServer, tmp_path: Path, name: str) -> None:
    scheme, width, height = PICTURES[name]
    scale = 2 if width < 500 else 1
    size = {"width": width, "height": height}
    look: dict[str, Any] = {"color_scheme": scheme, "device_scale_factor": scale, "reduced_motion": "reduce"}
    context = browser.new_context(viewport=size, **look)  # type: ignore[arg-type]
    page = context.new_page()
    try:
        picture = draw(page, real)
    finally:
        context.close()
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    assert image.size == (width * scale, height * scale)
    red, green, blue = image.getpixel((5, image.height - 5))  # type: ignore[misc]
    assert (max(red, green, blue) < 60) == (scheme == "dark")
    small = io.BytesIO()
    image.save(small, "PNG", optimize=True)
    assert 10_000 < small.tell() < 150_000
    folder = Path(os.environ.get("STREAMOE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.png").write_bytes(small.getvalue())


def draw(page: Page, real: RealServer) -> bytes:
    """The page after two questions, at the end of the second answer."""
    page.goto(real.url)
    page.locator("#model", has_text="streamoe-embedded").wait_for()
    page.evaluate("localStorage.setItem('streamoe.settings', JSON.stringify({temperature: '0', maxTokens: '300'}))")
    page.reload()
    for question in QUESTIONS:
        ask_and_wait(page, question)
    page.locator("#status-text", has_text="idle").wait_for()
    page.wait_for_timeout(600)  # the gauge's and the map's last snapshot
    page.evaluate("document.activeElement.blur()")
    return page.screenshot()
