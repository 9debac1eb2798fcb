"""The server's edges: who may ask, how much, what it tells of itself, and how it begins and ends."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.coordinator.conftest import Run
from tests.coordinator.serving.conftest import MODEL
from tests.coordinator.serving.server import ServerProcess

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.7", "localhost.evil.example", "", "[::2]"])
def test_another_host_is_refused(server: ServerProcess, host: str) -> None:
    status, body = server.get("/v1/models", Host=host)
    assert (status, body["error"]["code"]) == (403, "Refused")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:8080", "localhost."])
def test_names_of_this_machine_are_served(server: ServerProcess, host: str) -> None:
    assert server.get("/v1/models", Host=host)[0] == 200


def test_pages_of_other_sites_may_not_ask(server: ServerProcess) -> None:
    status, body = server.post("/v1/chat/completions", CHAT, Origin="https://evil.example")
    assert (status, body["error"]["type"]) == (403, "permission_error")
    assert server.post("/v1/chat/completions", CHAT, Origin="null")[0] == 403
    assert server.post("/v1/chat/completions", CHAT, Origin=server.url)[0] == 200


def test_every_answer_has_the_guarding_headers(server: ServerProcess) -> None:
    address = urlsplit(server.url)
    for path in ("/", "/health", "/v1/models", "/nothing", "/openapi.json"):
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        connection.close()
        policy = response.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "server" not in response.headers and "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "BadRequest"),
        (b"[]", 400, "BadRequest"),
        (b"{", 400, "BadRequest"),
        (b"\xff\xfe", 400, "BadRequest"),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, 400, "BadRequest"),
        (b'{"model": "' + b"x" * 5 * 1024**2 + b'"}', 413, "BodyTooLarge"),
        (json.dumps({**CHAT, "messages": [{"role": "user", "content": "\ud800"}]}).encode(), 400, "UsageError"),
    ],
)
def test_bodies_that_are_none(server: ServerProcess, body: bytes, status: int, code: str) -> None:
    assert (answer := server.post("/v1/chat/completions", body))[0] == status
    assert answer[1]["error"]["code"] == code


def test_errors_are_told_in_the_words_of_the_api(server: ServerProcess) -> None:
    assert server.post("/v1/messages", b"{}")[1]["type"] == "error"
    assert isinstance(server.post("/api/chat", b"{}")[1]["error"], str)
    assert server.get("/v1/nothing")[1]["error"]["code"] == "NotServed"
    assert server.get("/v1/chat/completions")[0] == 405


def test_health_telemetry_and_metrics_agree(server: ServerProcess) -> None:
    assert server.post("/v1/chat/completions", CHAT)[0] == 200
    server.wait_idle()
    status, health = server.get("/health")
    assert (status, health["status"], health["plan_ok"], health["error"]) == (200, "ok", True, None)
    assert server.get("/ready")[0] == 200
    told = server.telemetry()
    assert sum(item["bytes"] for item in told["plan"]["items"]) == told["budget_bytes"] == 384 * 1024**2
    assert told["footprint_bytes"] <= told["peak_bytes"] <= told["budget_bytes"]
    assert {item["name"] for item in told["plan"]["items"]} >= {"requests", "checkpoints", "hot tier"}
    num_layers = told["plan"]["num_layers"]
    assert all(len(column) == num_layers for column in told["layers"].values())
    values = metrics_of(server.get("/metrics")[1])
    assert values["streamoe_budget_bytes"] == told["budget_bytes"]
    for item in told["plan"]["items"]:
        assert values[f'streamoe_plan_bytes{{item="{item["name"]}",node="local"}}'] == item["bytes"]
    assert values["streamoe_generation_tokens_total"] == told["totals"]["generated_tokens"] > 0
    assert values['streamoe_expert_selected_total{layer="3",tier="ssd"}'] == told["layers"]["miss"][3]
    assert values['streamoe_expert_read_bytes_total{layer="3"}'] == told["layers"]["bytes_read"][3]
    assert values["streamoe_time_to_first_token_seconds_count"] > 0
    assert values['streamoe_band_up{first="0",last="15",node="local"}'] == 1


def metrics_of(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_telemetry_streams_at_most_five_a_second(server: ServerProcess) -> None:
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    connection.request("GET", "/api/telemetry")
    response = connection.getresponse()
    objects = []
    while len(objects) < 4:
        line = response.readline()
        if line.startswith(b"data: "):
            objects.append(json.loads(line[6:]))
    connection.close()
    gaps = [later["time_s"] - earlier["time_s"] for earlier, later in itertools.pairwise(objects)]
    assert min(gaps) >= 0.19


def test_the_description_names_every_endpoint(server: ServerProcess) -> None:
    described = server.get("/openapi.json")[1]
    assert {"/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/responses"} <= described["paths"].keys()
    schema = described["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["model", "messages"]


def test_a_busy_port_is_found_before_the_model_is_looked_for(run_streamoe: Run, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run_streamoe("serve", tmp_path, "--port", port)
    assert done.returncode == 2 and f"port {port}" in done.stderr


def test_a_plan_that_does_not_fit_ends_with_its_exit_code(run_streamoe: Run, embedded_folder: Path) -> None:
    done = run_streamoe("serve", embedded_folder, "--budget", "60MiB", "--port", "0")
    assert done.returncode == 3 and "short by" in done.stderr and "http" not in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--host", "0.0.0.0"), "STREAMOE_API_KEY"),
        (("--host", "0.0.0.0", "--api-key", "a\nb"), "no header can carry"),
        (("--port", "99999"), "port 99999"),
        (("--host", "203.0.113.9"), "203.0.113.9"),
    ],
)
def test_addresses_that_cannot_be_served(run_streamoe: Run, args: tuple[str, ...], words: str) -> None:
    done = run_streamoe("serve", *args)
    assert done.returncode == 2 and words in done.stderr


def test_keys_origins_a_short_line_and_the_end(
    clean_environment: dict[str, str], embedded_folder: Path, small_folder: Path
) -> None:
    """One more process, for what the shared one is not: a key, a page that may ask, one place, a line of one."""
    environment = clean_environment | {"STREAMOE_API_KEY": "secret-1"}
    args = ("--budget", "320MiB", "--cors-origin", "https://page.example", "--allow-host", "box.lan", "--alias", "*")
    args += ("--sequences", "1", "--queue", "1", "--host", "0.0.0.0", "--log-json", "--no-grammar", "--grace", "1")
    with ServerProcess(environment, embedded_folder, *args) as server:
        key = {"Authorization": "Bearer secret-1"}
        for wrong in ({}, {"Authorization": "Bearer secret-2"}, {"x_api_key": ""}, {"Authorization": "Basic secret-1"}):
            status, body = server.post("/v1/chat/completions", CHAT, **wrong)
            assert (status, body["error"]["code"]) == (401, "Unauthorized")
        assert server.get("/metrics")[0] == server.get("/api/telemetry?once=1")[0] == 401
        assert server.get("/health")[1]["needs_key"] is True
        assert server.post("/v1/messages", {**CHAT, "model": "claude"}, x_api_key="secret-1")[0] == 200
        assert server.get("/v1/models", Host="box.lan:99", **key)[0] == 200
        assert server.get("/v1/models", Host="192.168.1.4", **key)[0] == 200
        assert server.get("/v1/models", Host="evil.example", **key)[0] == 403
        assert server.post("/v1/chat/completions", CHAT, Origin="https://page.example", **key)[0] == 200
        assert server.post("/v1/chat/completions", CHAT, Origin="https://other.example", **key)[0] == 403
        _a_full_line(server, key)
        _the_end(server, key)
    logged = [json.loads(line) for line in server.lines if line.startswith("{")]
    assert any("prompt_tokens" in entry and "request" in entry for entry in logged)


LONG = {**CHAT, "max_tokens": 4000, "stream": True, "logit_bias": {"0": -100, "2": -100}}


def _a_full_line(server: ServerProcess, key: dict[str, str]) -> None:
    first, second = (_streaming(server, key) for _ in range(2))
    first[1].readline()
    second[1].readline()  # it waits, and its headers are there
    address = urlsplit(server.url)
    refused = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)
    refused.request("POST", "/v1/chat/completions", json.dumps(CHAT), {"Content-Type": "application/json", **key})
    response = refused.getresponse()
    assert response.status == 429 and 1 <= int(response.headers["retry-after"]) <= 60
    assert json.loads(response.read())["error"]["code"] == "QueueFull"
    refused.close()
    for connection, _ in (first, second):
        connection.close()


def _the_end(server: ServerProcess, key: dict[str, str]) -> None:
    # An answer that outlasts the grace is ended with an error in the stream, and the process with 0.
    server.wait_idle(**key)
    connection, response = _streaming(server, key)
    assert response.status == 200
    response.readline()
    codes: list[int] = []
    stopping = threading.Thread(target=lambda: codes.append(server.stop()))
    stopping.start()
    rest = response.read().decode()
    stopping.join(30)
    connection.close()
    assert codes == [0]
    assert "data: " in rest, (rest[-300:], server.lines[-5:])
    last = json.loads(rest.strip().rpartition("data: ")[2])
    assert last["error"]["code"] == "Draining"


def _streaming(
    server: ServerProcess, key: dict[str, str]
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.url).port, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps(LONG), {"Content-Type": "application/json", **key})
    return connection, connection.getresponse()
