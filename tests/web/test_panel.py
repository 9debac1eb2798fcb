"""The figures beside the chat: gauge, plan, heat map, bands, all from the server's snapshots."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.actions import ask, ask_and_wait, wait_for
from tests.web.fake_server import CAP, NUM_LAYERS, PLAN, Answer, FakeServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

MIB = 1024**2


def gauge(page: Page) -> dict[str, Any]:
    """What the gauge says and how far it reaches, in shares of the cap's line."""
    return page.evaluate(  # type: ignore[no-any-return]
        """() => {
            const bar = document.querySelector(".gauge-bar"), left = bar.getBoundingClientRect().left;
            const cap = document.querySelector(".gauge-cap").getBoundingClientRect().right - left;
            const fill = document.querySelector(".gauge-fill").getBoundingClientRect().right - left;
            const peak = document.querySelector(".gauge-peak").getBoundingClientRect().right - left;
            return {fill: fill / cap, peak: peak / cap, state: bar.dataset.state, words: bar.ariaValueText,
                    colour: getComputedStyle(document.querySelector(".gauge-fill")).backgroundColor};
        }"""
    )


def test_the_gauge_moves_and_warns_near_the_cap_in_words_too(page: Page, server: FakeServer) -> None:
    page.get_by_text("within the cap").wait_for()
    calm = gauge(page)
    assert calm["fill"] == pytest.approx(140 * MIB / CAP, abs=0.02)
    assert calm["peak"] == pytest.approx(141 * MIB / CAP, abs=0.02)
    assert calm["words"] == "140.00 MiB, peak 141.00 MiB · cap 192.00 MiB, within the cap"
    server.footprint_bytes = 183 * MIB
    page.get_by_text("near the cap").wait_for()
    near = gauge(page)
    assert (near["state"], near["fill"]) == ("near", pytest.approx(183 * MIB / CAP, abs=0.02))
    assert near["colour"] != calm["colour"]
    server.footprint_bytes = 195 * MIB
    page.get_by_text("over the cap").wait_for()
    assert gauge(page)["fill"] > 1, "beyond the line"
    assert page.locator("#status-text").inner_text() == "idle · peak 196/192 MiB"


def test_the_plan_has_the_plans_own_rows(page: Page) -> None:
    page.locator(".plan-rows li").first.wait_for()
    rows = [text.split("\n") for text in page.locator(".plan-rows li").all_inner_texts()]
    assert rows == [[name, f"{num_bytes / MIB:.2f} MiB"] for name, num_bytes, _ in PLAN]
    widths = page.locator(".plan-segment").evaluate_all("all => all.map((one) => one.getBoundingClientRect().width)")
    shares = [width / sum(widths) for width in widths]
    assert shares == pytest.approx([num_bytes / CAP for _, num_bytes, _ in PLAN], abs=0.01)
    name, _, why = PLAN[4]
    page.locator(".plan-segment").nth(4).hover()
    assert page.locator(".plan-why").inner_text() == f"{name}: {why}"
    page.mouse.move(10, 400)  # else what scrolls below the pointer would count as pointed at
    page.locator(".plan-rows button").nth(8).focus()
    assert page.locator(".plan-why").inner_text() == f"{PLAN[8][0]}: {PLAN[8][2]}"
    assert why in str(page.locator(".plan-rows button").nth(4).get_attribute("title"))


def pixels(page: Page) -> list[list[int]]:
    """The colours of the map's cells, a row a tier."""
    return page.locator(".heat").evaluate(  # type: ignore[no-any-return]
        f"""(canvas) => [0, 1, 2, 3].flatMap((row) => Array.from({{length: {NUM_LAYERS}}}, (_, layer) => {{
            const ratio = canvas.width / canvas.clientWidth;
            const x = (layer + 0.4) * canvas.clientWidth / {NUM_LAYERS} * ratio, y = (row * 20 + 9) * ratio;
            return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data];
        }}))"""
    )


def test_the_heat_map_moves_with_the_tokens_and_tells_of_each_layer(page: Page, server: FakeServer) -> None:
    page.get_by_text("Nothing has run yet.").wait_for()
    empty = pixels(page)
    assert len(set(map(tuple, empty))) == 1
    server.answer = lambda _: Answer(["word "] * 30, pause_s=0.02)
    ask_and_wait(page, "talk")
    page.get_by_text("over the last 30 tokens.").wait_for()
    drawn = pixels(page)
    assert len(set(map(tuple, drawn))) > 10
    missed = drawn[2 * NUM_LAYERS : 3 * NUM_LAYERS]
    assert missed[0] != missed[7], "layers differ"
    ask_and_wait(page, "more")
    ask_and_wait(page, "and more")
    # 64 or a few more: a snapshot comes every few tokens.
    page.get_by_text(re.compile(r"over the last (6[4-9]|[78]\d) tokens")).wait_for()
    box = page.locator(".heat").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 7.5 / NUM_LAYERS, box["y"] + 30)
    detail = page.locator(".heat-detail").inner_text()
    assert re.match(r"layer 7: hit 6\d%, guessed 2\d%, read [78]%; 0.1 MiB/tok, waited 0\.\d ms$", detail), detail
    page.focus(".heat")
    page.keyboard.press("ArrowRight")
    assert page.locator(".heat-detail").inner_text().startswith("layer 8: ")
    assert "layer 8" in str(page.locator(".heat").get_attribute("aria-label"))


def test_bands_are_told_apart_and_a_lost_one_says_so(page: Page, server: FakeServer) -> None:
    assert page.locator("#bands").is_hidden(), "one machine has no strip"
    server.answer = lambda _: Answer(["word "] * 10, pause_s=0.02)
    ask_and_wait(page, "talk")
    bands = [("studio", 0, 5, "up", None), ("mini-1", 6, 10, "suspect", 0.42), ("mini-2", 11, 15, "lost", 1.3)]
    costs = {"budget_bytes": 100 * MIB, "footprint_bytes": 50 * MIB, "peak_bytes": 60 * MIB}
    keys = ("name", "first_layer", "last_layer", "state", "rtt_ms")
    before = pixels_at_border(page)
    more = costs | {"detail": "", "plan": {"items": [{"name": "runtime", "bytes": 100 * MIB, "why": "measured"}]}}
    server.bands = [dict(zip(keys, band, strict=True)) | more for band in bands]
    server.bands[2] |= {key: None for key in (*costs, "plan")}  # a node that was never reached has told none
    page.get_by_text("mini-2").wait_for()
    heads = page.locator(".band-head").all_inner_texts()
    assert [head.split() for head in heads] == [
        ["studio", "layers", "0-5"],
        ["mini-1", "layers", "6-10", "·", "0.4", "ms"],
        ["mini-2", "layers", "11-15", "·", "1.3", "ms"],
    ]
    assert "lost" in page.locator(".band").nth(2).inner_text()
    assert page.locator(".band").nth(1).inner_text().endswith("50/100 MiB · slow to answer; waiting for it")
    assert page.locator(".band-bar").count() == 2
    assert page.locator("#plan h3").all_inner_texts() == ["studio", "mini-1"]
    assert page.locator(".plan-bar").count() == 2
    server.bands = [band | {"plan": None} for band in server.bands]
    page.locator("#plan").wait_for(state="hidden")
    assert pixels_at_border(page) != before, "a line between the bands"
    page.focus(".heat")
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    assert page.locator(".heat-detail").inner_text().startswith("layer 7 on mini-1: ")


def pixels_at_border(page: Page) -> list[int]:
    """The column where layer 6 begins."""
    return page.locator(".heat").evaluate(  # type: ignore[no-any-return]
        f"""(canvas) => [...canvas.getContext("2d").getImageData(
            Math.round(6 * canvas.width / {NUM_LAYERS}) - 1, 0, 2, canvas.height).data]"""
    )


def test_speed_and_requests_are_live(page: Page, server: FakeServer) -> None:
    server.answer = lambda _: Answer(["word "], hold=True)
    ask(page, "talk")
    page.get_by_text("1 running, 0 waiting").wait_for()
    assert page.locator("#tile-speed").inner_text() == "31.4"
    assert page.locator("#status-text").inner_text() == "31.4 tok/s · peak 141/192 MiB"
    page.keyboard.press("Escape")
    page.get_by_text("0 running, 0 waiting").wait_for()


def test_a_hidden_page_lets_go_of_its_connection(page: Page, server: FakeServer) -> None:
    page.locator("#panel[data-state=live]").wait_for()
    assert server.num_watching == 1
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, value: %s})"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(f"{hide % 'true'}; {tell}")
    wait_for(page, lambda: server.num_watching == 0)
    page.evaluate(f"{hide % 'false'}; {tell}")
    server.footprint_bytes = 100 * MIB
    page.locator("#gauge", has_text="100.00 MiB").wait_for()
    wait_for(page, lambda: server.num_watching == 1)
