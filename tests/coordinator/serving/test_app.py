"""The application over a fake band, where the real one is too quick or too healthy: keepalives, errors in the stream,
a server that loads, fails, or has nothing but its line."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from streamoe_coordinator.sampling import SamplingParams
from streamoe_coordinator.serving.app import make_app
from streamoe_coordinator.serving.bodies import Bodies
from streamoe_coordinator.serving.fittings import ModelFittings
from streamoe_coordinator.serving.run import listen
from streamoe_coordinator.serving.scheduler import Scheduler, SchedulerOptions
from streamoe_coordinator.serving.security import Access
from streamoe_coordinator.serving.served import Served
from streamoe_coordinator.serving.status import Watch
from streamoe_coordinator.text import Text
from streamoe_engine.errors import PlanDoesNotFit, ReadFailed
from tests.coordinator.fake_band import VOCAB
from tests.coordinator.serving.fake_sequences import FakeSequences
from tests.waiting import eventually

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


@dataclass
class Running:
    """A server in this process."""

    client: httpx2.Client
    scheduler: Scheduler
    bodies: Bodies


@contextmanager
def running(text: Text, opened: Any, **options: Any) -> Iterator[Running]:
    scheduler = Scheduler(opened, text.tokenizer, SchedulerOptions(**options))
    served = Served("m", text, ModelFittings(text, None), scheduler, SamplingParams(), VOCAB)
    watch = Watch(served, needs_key=False, max_waiting=64, checkpoint_bytes=0)
    listening, bodies = listen("127.0.0.1", 0), Bodies()
    app = make_app(served, Access("127.0.0.1"), watch, bodies, keepalive_s=0.15)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening.socket]})
    scheduler.start()
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.005)
    try:
        with httpx2.Client(base_url=listening.url, timeout=20) as client:
            yield Running(client, scheduler, bodies)
    finally:
        scheduler.close()
        server.should_exit = True
        thread.join(10)
        listening.socket.close()
    assert not thread.is_alive()


@pytest.fixture
def band(text: Text) -> FakeSequences:
    (end_id,) = text.tokenizer.eos_ids
    return FakeSequences(end_id)


@contextmanager
def giving(band: FakeSequences) -> Iterator[FakeSequences]:
    yield band


def lines_of(client: httpx2.Client, path: str, body: dict[str, Any]) -> list[str]:
    with client.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        return [line for line in response.iter_lines() if line]


@pytest.mark.parametrize(
    ("path", "sign"),
    [
        ("/v1/chat/completions", ": keepalive"),
        ("/v1/responses", ": keepalive"),
        ("/v1/messages", "event: ping"),
        ("/api/chat", '"content": ""'),
    ],
)
def test_a_long_wait_shows_that_the_server_lives(band: FakeSequences, text: Text, path: str, sign: str) -> None:
    band.before_run = lambda _: time.sleep(0.4) if len(band.calls) == 0 else None
    body = {**CHAT, "input": "hello", "stream": True}
    with running(text, lambda: giving(band)) as server:
        server.scheduler.wait_until_open(10)
        told = lines_of(server.client, path, body)
    assert sum(sign in line for line in told) >= 2


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat"]
)
def test_an_error_after_the_first_byte_is_told_in_the_stream(
    band: FakeSequences, text: Text, path: str, tmp_path: Path
) -> None:
    def fail(_: FakeSequences) -> None:
        if len(band.calls) > 6:
            raise ReadFailed(tmp_path / "experts" / "layer", 0, 8, "Input/output error")

    band.before_run = fail
    band.never_ends = True
    more = {"prompt": "hello there, you"} if path == "/v1/completions" else {"input": "hello"}
    body = {**CHAT, **more, "stream": True, "max_tokens": 300}
    with running(text, lambda: giving(band)) as server:
        server.scheduler.wait_until_open(10)
        told = lines_of(server.client, path, body)
        assert "Input/output error" in told[-1] and "[DONE]" not in told[-1]
        whole = server.client.post(path, json={**body, "stream": False})
        assert whole.status_code == 500 and "Input/output error" in whole.text
        band.before_run = lambda _: None
        assert server.client.post(path, json={**body, "stream": False, "max_tokens": 3}).status_code == 200
        assert server.client.get("/health").json()["status"] == "ok"


def test_a_server_that_loads_says_so(band: FakeSequences, text: Text) -> None:
    gate = threading.Event()

    @contextmanager
    def slowly() -> Iterator[FakeSequences]:
        gate.wait(10)
        yield band

    with running(text, slowly) as server:
        health = server.client.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "loading")
        assert server.client.get("/ready").status_code == 503
        refused = server.client.post("/v1/chat/completions", json=CHAT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "NotReady")
        assert server.client.get("/metrics").status_code == 200
        told = server.client.get("/api/telemetry?once=1").json()
        assert (told["status"], told["plan"], told["budget_bytes"], told["bands"]) == ("loading", None, None, [])
        assert server.client.get("/v1/models").status_code == 200
        gate.set()
        server.scheduler.wait_until_open(10)
        assert server.client.get("/ready").status_code == 200
        assert server.client.post("/v1/chat/completions", json=CHAT).status_code == 200


def test_a_plan_that_does_not_fit_is_told_with_its_figures(text: Text) -> None:
    @contextmanager
    def refused() -> Iterator[FakeSequences]:
        raise PlanDoesNotFit("needs 2 B, the cap is 1 B", "try --budget 2B", needed_bytes=2, cap_bytes=1)
        yield

    with running(text, refused) as server:
        with pytest.raises(PlanDoesNotFit):
            server.scheduler.wait_until_open(10)
        health = server.client.get("/health").json()
        assert (health["status"], health["plan_ok"]) == ("failed", False)
        assert health["error"]["code"] == "PlanDoesNotFit" and health["error"]["short_bytes"] == 1
        answer = server.client.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 500 and "needs 2 B" in answer.json()["error"]["message"]


def test_forced_calls_and_forms_without_grammars_are_refused(band: FakeSequences, text: Text) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    with running(text, lambda: giving(band)) as server:
        server.scheduler.wait_until_open(10)
        for more, param in (
            ({"tools": tools, "tool_choice": "required"}, "tool_choice"),
            ({"response_format": {"type": "json_object"}}, "response_format"),
        ):
            answer = server.client.post("/v1/chat/completions", json={**CHAT, **more})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
        assert server.client.post("/v1/chat/completions", json={**CHAT, "tools": tools}).status_code == 200


def test_bodies_give_their_room_back(band: FakeSequences, text: Text) -> None:
    with running(text, lambda: giving(band)) as server:
        server.scheduler.wait_until_open(10)
        big = json.dumps({**CHAT, "metadata": {"x": "y" * 3_000_000}}).encode()
        for _ in range(4):
            assert server.client.post("/v1/chat/completions", content=big).status_code == 200
        assert server.client.post("/v1/chat/completions", content=big + big).status_code == 413
        chunked = server.client.post("/v1/chat/completions", content=iter([big, big]))
        assert chunked.status_code == 413
        assert server.bodies.held_bytes == 0


def test_a_client_that_waits_in_line_and_leaves_is_forgotten(text: Text) -> None:
    (end_id,) = text.tokenizer.eos_ids
    band = FakeSequences(end_id, num_sequences=1)
    gate = threading.Event()
    band.before_run = lambda _: gate.wait(10) and None
    with running(text, lambda: giving(band)) as server:
        server.scheduler.wait_until_open(10)
        quick = httpx2.Timeout(20, read=0.3)
        for _ in range(3):
            with pytest.raises(httpx2.ReadTimeout):
                server.client.post("/v1/chat/completions", json=CHAT, timeout=quick)
        gate.set()
        eventually(lambda: server.scheduler.load.is_idle)
        assert server.client.post("/v1/chat/completions", json=CHAT).status_code == 200
