"""Opens every page in Chromium again and again, each time as a browser that has never been there, and writes the times.

python benchmarks/service_pages/run.py FOLDER [ROUNDS]

FOLDER is that of prepare.py; results.csv of this folder is written anew.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, sync_playwright
from prepare import PASSWORD

HERE = Path(__file__).parent

PAGES = {
    "requests": ("ann", "/requests"),
    "a request": ("ann", "/requests/900"),
    "new request": ("ann", "/requests/new?application=plate"),
    "applications": ("ann", "/applications"),
    "studies": ("ann", "/studies"),
    "a study of 10,000 trials": ("ann", "/studies/1"),
    "workflows": ("ann", "/workflows"),
    "cluster": ("ann", "/cluster"),
    "3,482 offers": ("ann", "/offers"),
    "machines": ("root", "/admin/machines"),
    "users": ("root", "/admin/users"),
    "tenants": ("root", "/admin/tenants"),
    "audit log": ("root", "/admin/audit"),
}

OBSERVE = """
window.longTasks = [];
const keep = ({ startTime, duration }) => longTasks.push([startTime, duration]);
new PerformanceObserver((list) => list.getEntries().forEach(keep)).observe({ type: "longtask", buffered: true });
"""

# A page can be used once it is loaded, its charts have their data, and no task of over 50 ms runs for half a second.
SETTLED = """async () => {
  const pause = (wait) => new Promise((done) => setTimeout(done, wait));
  const loading = () => document.readyState !== "complete" || document.querySelector("[data-loading]");
  while (loading()) await pause(20);
  while (performance.now() - Math.max(0, ...longTasks.map(([at, took]) => at + took)) < 500) await pause(50);
  while (!performance.getEntriesByName("first-contentful-paint").length) await pause(20);
  const [page] = performance.getEntriesByType("navigation"), files = performance.getEntriesByType("resource");
  const ready = performance.getEntriesByName("plots-ready")[0]?.startTime ?? page.domContentLoadedEventEnd;
  return {
    answered: page.responseStart,
    painted: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    interactive: Math.max(ready, page.domContentLoadedEventEnd, ...longTasks.map(([at, took]) => at + took)),
    blocked: longTasks.reduce((sum, [, took]) => sum + took - 50, 0),
    kilobytes: [page, ...files].reduce((sum, one) => sum + one.transferSize, 0) / 1000,
    requests: 1 + files.length,
  };
}"""


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """``tradewind serve`` in a process of its own."""
    environment = {**os.environ, "TRADEWIND_HOME": str(folder)}
    words = [sys.executable, "-m", "tradewind", "serve", "--port", "0", "--runs", "0"]
    words += ["--database", f"sqlite:///{folder / 'tradewind.db'}"]
    log = folder / "serve.log"
    with log.open("w") as stream:
        process = subprocess.Popen(words, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.1)
        yield found[0]
    finally:
        process.terminate()
        process.wait(30)


def sign_in(browser: Browser, url: str, name: str) -> Any:
    """The cookies of a session."""
    context = browser.new_context(base_url=url)
    page = context.new_page()
    page.goto("/sign-in")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda address: "sign-in" not in address)
    state = context.storage_state()
    context.close()
    return state


def processor_seconds() -> dict[tuple[str, int], float]:
    """Processor time so far of the server's processes, and of the browser's for pages, by their numbers."""
    found: dict[tuple[str, int], float] = {}
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            words = " ".join(child.cmdline())
            kind = "server_cpu" if " serve " in words else "page_cpu" if "--type=renderer" in words else ""
            if kind:
                found[kind, child.pid] = sum(child.cpu_times()[:2])
    return found


def measure(browser: Browser, url: str, state: Any, address: str) -> dict[str, float]:
    """The times of a page in a browser that has nothing of it yet."""
    before = processor_seconds()
    context = browser.new_context(base_url=url, storage_state=state, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.add_init_script(OBSERVE)
    page.goto(address)
    found: dict[str, float] = page.evaluate(SETTLED)
    taken = {"server_cpu": 0.0, "page_cpu": 0.0}
    for (name, pid), seconds in processor_seconds().items():
        taken[name] += 1000 * (seconds - before.get((name, pid), 0.0))
    context.close()
    return found | taken


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    program = os.environ.get("TRADEWIND_CHROMIUM") or shutil.which("chromium")
    names = ["page", "round", "load", "answered", "painted", "interactive", "blocked", "kilobytes", "requests"]
    names += ["server_cpu", "page_cpu"]
    with (
        server(folder) as url,
        sync_playwright() as playwright,
        (HERE / "results.csv").open("w", newline="") as stream,
    ):
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        states = {name: sign_in(browser, url, name) for name in ("ann", "root")}
        # Round 0 is the first that anybody sees of a server that was just started.
        for turn in range(rounds + 1):
            for page, (name, address) in PAGES.items():
                found = measure(browser, url, states[name], address)
                rounded = {key: round(value, 1) for key, value in found.items()}
                writer.writerow({"page": page, "round": turn, "load": round(os.getloadavg()[0], 2), **rounded})
                stream.flush()
        browser.close()


if __name__ == "__main__":
    main()
