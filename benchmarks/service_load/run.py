"""Loads a real server (uvicorn and worker, as `tradewind serve` starts them) and writes what it measured.

python benchmarks/service_load/run.py [--folder FOLDER] [--seconds 60] [--only calls,streams,hello] [--processes 1]

Three scenes, each with a server of its own: `calls` (200 clients that poll, 20 that submit), `streams` (as many event
streams as are asked for, while requests are submitted and watched), `hello` (the same polling of a FastAPI program
that does nothing). A latency counts from the moment when a call was due, not from when the client came to it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
from calls import Caller

POLLING, SUBMITTING = 200, 20


class Served:
    """A server as a process of its own, with its worker."""

    def __init__(self, words: list[str], env: dict[str, str], port: int, log: Path) -> None:
        self.port = port
        self._log = log.open("wb")
        self.process = subprocess.Popen(words, env={**os.environ, **env}, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + 60.0
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the server does not start: {log}") from None
                time.sleep(0.1)
        self._me = psutil.Process(self.process.pid)

    def used(self) -> dict[str, float]:
        """CPU seconds of what answers, and of its worker with what that runs; the memory of what answers."""
        own = self._me.cpu_times()
        found = {"server": own.user + own.system, "worker": 0.0, "rss": self._me.memory_info().rss / 2**20}
        for child in self._me.children(recursive=True):
            try:
                times = child.cpu_times()
                answers = self._answers(child)
                found["rss"] += child.memory_info().rss / 2**20 if answers else 0.0
            except psutil.NoSuchProcess:
                continue
            whole = times.user + times.system + times.children_user + times.children_system
            found["server" if answers else "worker"] += whole
        return found

    @staticmethod
    def _answers(child: psutil.Process) -> bool:
        return child.cmdline()[-1:] == ["tradewind.service.operations.supervision.http_process"]

    def answering(self) -> int:
        """How many of its processes answer by now."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return sum(line.startswith(b"tradewind_event_streams") for line in answer)

    def spread(self) -> list[int]:
        """How many connections each process holds that answers."""
        others = [child for child in self._me.children() if self._answers(child)]
        here = [one.net_connections() for one in (self._me, *others)]
        return [sum(one.status == psutil.CONN_ESTABLISHED for one in found) for found in here]

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self._log.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tradewind(prepared: Path, name: str, **settings: Any) -> Served:
    """A server on a copy of the data: what one scene leaves in the queue is not carried out in another."""
    port, folder = free_port(), prepared / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(prepared / "tradewind.db", folder)
    flags = [f"--set={key}={value}" for key, value in settings.items()]
    words = [sys.executable, "-m", "tradewind", "serve", "--port", str(port), *flags]
    env = {
        "TRADEWIND_HOME": str(folder / "home"),
        "TRADEWIND_STORE": f"sqlite:///{folder}/tradewind.db",
        "TRADEWIND_SERVICE_LOG_LEVEL": "warning",
    }
    served = Served(words, env, port, folder / f"{name}.log")
    while served.answering() < settings["processes"]:
        time.sleep(0.2)
    return served


async def every_second(
    work: Callable[[], Awaitable[None]],
    until: float,
    latencies: list[float],
    errors: list[str],
    start: float,
    period: float = 1.0,
) -> None:
    """Do something every so many seconds from a moment on, and note how long after it was due each was done."""
    due = start
    while due < until:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        try:
            await work()
            latencies.append(time.perf_counter() - due)
        except (RuntimeError, OSError, asyncio.IncompleteReadError) as error:
            errors.append(f"{type(error).__name__}: {error}"[:200])
        due += period


class Polling:
    """A client that asks by turns for a request, for its list and for what happened, with the tags that it knows."""

    def __init__(self, caller: Caller, numbers: list[int], rng: random.Random) -> None:
        self._caller, self._numbers, self._rng = caller, numbers, rng
        self._tags: dict[str, str] = {}
        self._since = 0
        self.unchanged = 0

    async def __call__(self) -> None:
        kind = self._rng.random()
        if kind < 0.6:
            await self._tagged(f"/api/v1/requests/{self._rng.choice(self._numbers)}")
        elif kind < 0.9:
            await self._tagged("/api/v1/requests?limit=20")
        else:
            answer = await self._caller.call("GET", f"/api/v1/events?since={self._since}&limit=100")
            check(answer.status, 200, answer.body)
            events = json.loads(answer.body)
            self._since = events[-1]["id"] if events else self._since

    async def _tagged(self, path: str) -> None:
        tag = self._tags.get(path)
        answer = await self._caller.call("GET", path, more=f"If-None-Match: {tag}\r\n" if tag else "")
        if answer.status == 304:
            self.unchanged += 1
            return
        check(answer.status, 200, answer.body)
        self._tags[path] = answer.headers["etag"]


def check(status: int, wanted: int, body: bytes) -> None:
    if status != wanted:
        raise RuntimeError(f"{status} {body[:150]!r}")


def submitting(caller: Caller, numbers: list[int]) -> Callable[[], Awaitable[None]]:
    async def submit() -> None:
        body = json.dumps({"application": "quick", "parameters": {"size": random.randrange(1, 100000)}}).encode()
        answer = await caller.call("POST", "/api/v1/requests", body)
        check(answer.status, 201, answer.body)
        numbers.append(json.loads(answer.body)["id"])

    return submit


async def calls(server: Served, people: list[dict[str, str]], seconds: float, submits: bool = True) -> dict[str, Any]:
    """Clients that poll and clients that submit."""
    rng = random.Random(1)
    reads: list[float] = []
    writes: list[float] = []
    errors: list[str] = []
    numbers: dict[str, list[int]] = {}
    for person in people:
        answer = await Caller(server.port, person["token"]).call("GET", "/api/v1/requests?limit=50")
        numbers.setdefault(person["tenant"], [one["id"] for one in json.loads(answer.body)])
    begin = time.perf_counter() + 1.0
    until, tasks, pollers = begin + seconds, [], []
    for client in range(POLLING):
        person = people[client % len(people)]
        mine = rng.sample(numbers[person["tenant"]], 3)
        poller = Polling(Caller(server.port, person["token"]), mine, random.Random(client))
        pollers.append(poller)
        tasks.append(every_second(poller, until, reads, errors, begin + rng.random()))
    for client in range(SUBMITTING if submits else 0):
        person = people[client % len(people)]
        work = submitting(Caller(server.port, person["token"]), numbers[person["tenant"]])
        tasks.append(every_second(work, until, writes, errors, begin + rng.random()))
    before = server.used()
    await asyncio.gather(*tasks)
    after = server.used()
    return {
        "reads": reads,
        "submits": writes,
        "errors": errors,
        "unchanged": sum(poller.unchanged for poller in pollers),
        "cpu": {name: (after[name] - before[name]) / seconds for name in ("server", "worker")},
        "rss": after["rss"],
        "seconds": seconds,
    }


class Hello:
    """A client of the program that does nothing."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def __call__(self) -> None:
        answer = await self._caller.call("GET", "/hello")
        check(answer.status, 200, answer.body)


async def hello(server: Served, seconds: float) -> dict[str, Any]:
    rng = random.Random(1)
    reads: list[float] = []
    errors: list[str] = []
    begin = time.perf_counter() + 1.0
    tasks = [
        every_second(Hello(Caller(server.port, "x")), begin + seconds, reads, errors, begin + rng.random())
        for _ in range(POLLING + SUBMITTING)
    ]
    before = server.used()
    await asyncio.gather(*tasks)
    after = server.used()
    return {"reads": reads, "errors": errors, "cpu": (after["server"] - before["server"]) / seconds, "seconds": seconds}


async def streams(server: Served, people: list[dict[str, str]], count: int, seconds: float) -> dict[str, Any]:
    """Open streams, then submit; how long after it happened each stream hears of it."""
    lags: list[float] = []
    lost = 0
    opened, began = [], time.perf_counter()

    async def listen(caller: Caller, reader: asyncio.StreamReader) -> None:
        nonlocal lost  # the caller keeps the connection
        try:
            while True:
                line = await reader.readline()
                if not line:
                    lost += 1
                    return
                if line.startswith(b"data: ") and b'"stage"' in line:
                    lags.append(time.time() - float(json.loads(line[6:])["at"]))
        except (OSError, asyncio.IncompleteReadError):
            lost += 1

    async def open_one(number: int) -> None:
        person = people[number % len(people)]
        caller = Caller(server.port, person["token"])
        reader = await caller.open("/api/v1/events", "Accept: text/event-stream\r\n")
        opened.append(asyncio.create_task(listen(caller, reader)))

    before = server.used()
    for first in range(0, count, 50):
        await asyncio.gather(*(open_one(number) for number in range(first, min(count, first + 50))))
    opening = time.perf_counter() - began
    idle, spread = server.used(), server.spread()
    await asyncio.sleep(20.0)
    quiet = server.used()
    writes: list[float] = []
    errors: list[str] = []
    reads: list[float] = []
    rng = random.Random(2)
    begin = time.perf_counter()
    tasks = []
    # Each of its events goes to a tenth of the streams: those of its tenant.
    work = submitting(Caller(server.port, people[0]["token"]), [])
    tasks.append(every_second(work, begin + seconds, writes, errors, begin, 5.0))
    for client in range(20):
        mine = await own_numbers(server, people[client])
        poller = Polling(Caller(server.port, people[client]["token"]), mine[:3], random.Random(client))
        tasks.append(every_second(poller, begin + seconds, reads, errors, begin + rng.random()))
    await asyncio.gather(*tasks)
    await asyncio.sleep(2.0)
    after = server.used()
    for task in opened:
        task.cancel()
    return {
        "streams": len(opened),
        "spread": spread,
        "lost": lost,
        "opening": opening,
        "lags": lags,
        "reads": reads,
        "submits": writes,
        "errors": errors,
        "rss_each_kib": (idle["rss"] - before["rss"]) * 1024 / max(1, len(opened)),
        "cpu_idle": (quiet["server"] - idle["server"]) / 20.0,
        "cpu_busy": (after["server"] - quiet["server"]) / (seconds + 2.0),
        "rss": after["rss"],
    }


async def own_numbers(server: Served, person: dict[str, str]) -> list[int]:
    answer = await Caller(server.port, person["token"]).call("GET", "/api/v1/requests?limit=50")
    return [one["id"] for one in json.loads(answer.body)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/tradewind_service_load"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--streams", type=int, default=5000)
    parser.add_argument("--processes", type=int, default=1, help="that answer; written as a file of its own")
    parser.add_argument("--only", default="hello,calls,answering,streams")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 20_000)), hard))
    people = json.loads((options.folder / "people.json").read_text())
    file = options.folder / ("results.json" if options.processes == 1 else f"results-{options.processes}.json")
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name in options.only.split(","):
        print(name, flush=True)
        load = os.getloadavg()[0]
        if name == "hello":
            port = free_port()
            words = [sys.executable, str(Path(__file__).parent / "hello.py"), str(port)]
            server = Served(words, {}, port, options.folder / "hello.log")
            work = hello(server, options.seconds)
        elif name == "streams":
            server = tradewind(options.folder, name, streams=options.streams, runs=4, processes=options.processes)
            work = streams(server, people, options.streams, options.seconds / 2)
        else:
            runs = 4 if name == "calls" else 0
            server = tradewind(options.folder, name, runs=runs, processes=options.processes)
            work = calls(server, people, options.seconds)
        try:
            results[name] = {**asyncio.run(work), "load_before": load}
        finally:
            server.end()
        file.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
