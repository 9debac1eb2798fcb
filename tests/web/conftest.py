"""The page in a real browser: Chromium without a window, driven by Playwright; skips where either is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.web.fake_server import FakeServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests; each gets a page of its own. STREAMOE_TEST_CHROMIUM names another."""
    api = pytest.importorskip("playwright.sync_api", reason="needs the Python package playwright")
    found = [path for name in NAMES if (path := shutil.which(name))]
    program = os.environ.get("STREAMOE_TEST_CHROMIUM") or next(iter(found), None)
    if program is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(executable_path=program, headless=True, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """The fake server, running."""
    fake = FakeServer()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def watched(browser: Browser, server: FakeServer) -> Iterator[Page]:
    """A page in a browser that knows nothing yet, closed before the server.

    Fails its test where anything was asked of a host that is not loopback, a script failed, or the security policy had
    to stop something.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB", reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(10_000)
    seen = Seen(page)
    page.seen = seen  # type: ignore[attr-defined]
    yield page
    context.close()
    assert seen.hosts <= {"127.0.0.1", "localhost", "", None}, seen.hosts
    assert not seen.problems, seen.problems


class Seen:
    """What a page asked for, and what went wrong on it. expected: words of problems that a test brings about."""

    def __init__(self, page: Page) -> None:
        self.hosts: set[str | None] = set()
        self._problems: list[str] = []
        self.expected: tuple[str, ...] = ()
        self._ours = "willReadFrequently"  # tests read the canvas back; the page never does
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname))
        page.on("pageerror", lambda error: self._problems.append(f"script: {error}"))
        page.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self._problems.append(f"console: {message.text}")

    @property
    def problems(self) -> list[str]:
        """Those that no test expected."""
        return [text for text in self._problems if not any(words in text for words in (*self.expected, self._ours))]


@pytest.fixture
def page(watched: Page, server: FakeServer) -> Page:
    """The page, open and ready, with the fake server behind it."""
    watched.goto(server.url)
    watched.locator("#model", has_text="fake-1b").wait_for()
    return watched
