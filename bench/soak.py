"""Many clients at one `streamoe serve`, half of whom hang up in the middle of a stream, for minutes.

    python bench/soak.py --clients 200 --minutes 10

Starts a server with the embedded model, learns what each prompt's greedy answer is alone, lets the clients loose, and
ends with 1 unless: every answer that finished is the same as alone, the server's peak kept to its cap, and at the end
nothing runs, nothing waits and no more descriptors are open than before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

WORDS = ("river", "fox", "lamp", "mountain", "letter", "clock", "bread", "song", "window", "horse", "cloud", "key")
NUM_PROMPTS = 24
OUTCOMES = {200: "finished", 499: "hung up", 429: "told to come again"}


@dataclass
class Tally:
    """What came of all requests."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def prompt_of(number: int) -> str:
    chosen = random.Random(number).sample(WORDS, 3)
    return f"Write one sentence about a {chosen[0]}, a {chosen[1]} and a {chosen[2]}."


def body_of(number: int, *, is_streamed: bool) -> dict[str, Any]:
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": prompt_of(number)}]
    return {"model": "any", "messages": messages, "temperature": 0, "max_tokens": 40, "stream": is_streamed}


async def whole_answer(client: httpx2.AsyncClient, number: int) -> tuple[int, str, float]:
    """Status, text, and the seconds to come again after."""
    response = await client.post("/v1/chat/completions", json=body_of(number, is_streamed=False))
    if response.status_code != 200:
        return response.status_code, response.text, float(response.headers.get("retry-after", 1))
    return 200, response.json()["choices"][0]["message"]["content"], 0.0


async def streamed_answer(client: httpx2.AsyncClient, number: int, leaves_after: int | None) -> tuple[int, str, float]:
    """As whole_answer; None of the text where the client left after so many chunks."""
    text, num_chunks = "", 0
    async with client.stream("POST", "/v1/chat/completions", json=body_of(number, is_streamed=True)) as response:
        if response.status_code != 200:
            return response.status_code, "", float(response.headers.get("retry-after", 1))
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                return 500, str(chunk["error"]), 0.0
            text += chunk["choices"][0]["delta"].get("content") or ""
            num_chunks += 1
            if num_chunks == leaves_after:
                return 499, text, 0.0
    return 200, text, 0.0


async def one_client(url: str, seed: int, until_s: float, alone: dict[int, str], tally: Tally) -> None:
    """Asks, hangs up or reads to the end, and asks again."""
    chance = random.Random(seed)
    while time.monotonic() < until_s:
        async with httpx2.AsyncClient(base_url=url, timeout=600) as client:
            number = chance.randrange(NUM_PROMPTS)
            if chance.random() < 0.8:
                leaves_after = chance.randrange(1, 12) if chance.random() < 0.6 else None
                status, text, retry_s = await streamed_answer(client, number, leaves_after)
            else:
                status, text, retry_s = await whole_answer(client, number)
        tally.outcomes[
            {200: "finished", 499: "hung up", 429: "told to come again"}.get(status, f"status {status}")
        ] += 1
        if status == 200 and text != alone[number]:
            tally.wrong.append(f"prompt {number}: {text!r} instead of {alone[number]!r}")
        if status == 499 and not alone[number].startswith(text):
            tally.wrong.append(f"prompt {number}: {text!r} does not begin {alone[number]!r}")
        await asyncio.sleep(min(retry_s, 5) * chance.random())


async def telemetry(url: str) -> dict[str, Any]:
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        return dict((await client.get("/api/telemetry?once=1")).json())


def num_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def wait_idle(url: str) -> dict[str, Any]:
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s:
        told = await telemetry(url)
        if told["requests"]["running"] + told["requests"]["waiting"] == 0:
            break
        await asyncio.sleep(0.2)
    return told


async def soak(url: str, pid: int, num_clients: int, minutes: float) -> bool:
    alone: dict[int, str] = {}
    async with httpx2.AsyncClient(base_url=url, timeout=120) as client:
        for number in range(NUM_PROMPTS):
            status, text, _ = await whole_answer(client, number)
            assert status == 200, text
            alone[number] = text
    await asyncio.sleep(1)
    before, files_before = await telemetry(url), num_descriptors(pid)
    tally, until_s = Tally(), time.monotonic() + 60 * minutes
    await asyncio.gather(*(one_client(url, seed, until_s, alone, tally) for seed in range(num_clients)))
    after = await wait_idle(url)
    await asyncio.sleep(2)
    files_after = num_descriptors(pid)
    print(f"outcomes: {dict(tally.outcomes)}; answers unlike alone: {len(tally.wrong)}")
    for line in tally.wrong[:5]:
        print(f"  {line}")
    print(
        f"peak {after['peak_bytes']} B of {after['budget_bytes']} B; footprint {before['footprint_bytes']} B before, "
        f"{after['footprint_bytes']} B after; descriptors {files_before} before, {files_after} after"
    )
    print(f"requests {after['requests']}, totals {after['totals']}, checkpoints {after['checkpoints']}")
    is_idle = after["requests"]["running"] == after["requests"]["waiting"] == 0
    return (
        not tally.wrong
        and set(tally.outcomes) <= set(OUTCOMES.values())
        and tally.outcomes["finished"] > 0
        and after["peak_bytes"] <= after["budget_bytes"]
        and is_idle
        and files_after <= files_before + 2
        and after["checkpoints"]["bytes"] <= after["checkpoints"]["budget_bytes"]
    )


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--budget", default=None, help="left out: what streamoe takes for the embedded model")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="where the server's log goes")
    args = parser.parse_args()
    command = [sys.executable, "-m", "streamoe_coordinator", "serve", "--port", "0", "--alias", "*", "--queue", "256"]
    command += ["--sequences", str(args.sequences), "--ctx", "512"]
    command += ["--budget", args.budget] if args.budget else []
    with args.log.open("wb") as log:
        server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=log)
        assert server.stdout is not None
        try:
            url = ""
            async for line in server.stdout:
                if match := re.match(rb"serving \S+ at (\S+)", line):
                    url = match[1].decode()
                    break
            assert url, "the server did not start; see --log"
            is_good = await soak(url, server.pid, args.clients, args.minutes)
        finally:
            server.send_signal(signal.SIGTERM)
            code = await server.wait()
    print(f"the server ended with {code}: {'good' if is_good and code == 0 else 'NOT good'}")
    return 0 if is_good and code == 0 else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
