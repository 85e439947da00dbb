"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests import workers
from tests.browser import browser, shots  # noqa: F401  (fixtures)
from tests.durations import Durations
from tests.effort import EVERYTHING, share
from tests.quick import program

# Workers and the programs that they start keep all cores busy, and matrices are small: further threads would only take
# turns. numpy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Servers of tests keep their data where only the user that runs the tests may look.
os.environ.setdefault("TRADEWIND_SERVICE_ALLOW_ROOT", "true")

# Neither they nor what is started once for many tests waits for runs of the user's, or of another worker of pytest.
SLOTS = os.environ["TRADEWIND_SLOTS"] = tempfile.mkdtemp(prefix="tradewind-slots-")

# How long an example takes says how busy the machine is.
settings.register_profile(
    "shared-machine", max_examples=share(100, 40), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared-machine")


def pytest_configure(config: pytest.Config) -> None:
    """Measure how long tests take."""
    config.pluginmanager.register(Durations(config), "durations")


def pytest_unconfigure() -> None:
    """After the last test."""
    shutil.rmtree(SLOTS, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave thorough tests and the long ones of real engines to ``make test-all``, and begin with what takes long.

    All tests of an engine are slow: it has to start, and they wait for it. So are those that `Durations` knows as long.
    """
    durations = config.pluginmanager.get_plugin("durations")
    assert isinstance(durations, Durations)
    engines = {item for item in items if item.get_closest_marker("xdist_group")}
    thorough = {item for item in items if item.get_closest_marker("thorough")}
    left_out = set() if EVERYTHING else thorough | {item for item in engines if _is_long(item)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
    kept = [item for item in items if item not in left_out]
    for item in kept:
        if item in engines | thorough or durations.is_long(item):
            item.add_marker(pytest.mark.slow)
    items[:] = sorted(kept, key=lambda item: item.get_closest_marker("slow") is None)


def _is_long(item: pytest.Item) -> bool:
    """Slow, or about faults: cables are cut and daemons killed there, and waited for; but no documented example."""
    if item.get_closest_marker("example") is not None:
        return False
    return item.get_closest_marker("slow") is not None or item.path.stem.endswith("_faults")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many workers ``-n auto`` makes."""
    return workers.count(quick=config.option.markexpr == "not slow")


def pytest_collection(session: pytest.Session) -> None:
    """Before the first module is looked for. What is collected stays: to look for garbage takes a fifth of the time."""
    gc.disable()
    workers.import_own_share(session)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who runs what."""
    return workers.ByEngine(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first test. What is there by now is looked at no more when garbage is collected."""
    gc.freeze()
    gc.enable()
    if getattr(session.config, "cache", None) is not None:
        workers.compile_once(session.config.cache.mkdir("compiling"))


def pytest_report_header() -> str:
    """What is left out."""
    return "" if EVERYTHING else "thorough tests and long ones of real engines are left out: make test-all runs them"


@pytest.fixture(scope="session")
def quick() -> Iterator[Path]:
    """A program that is ``tradewind``, as a process of its own, and starts at once."""
    with program() as path:
        yield path


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path) -> Iterator[None]:
    """Every test has a data folder of its own: no test sees the user's store, or waits for the runs of another one.

    Not with the test's own ``monkeypatch``: a test that undoes what it has patched keeps this.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
        patch.setenv("TRADEWIND_SLOTS", str(tmp_path / "places"))
        patch.delenv("TRADEWIND_STORE", raising=False)
        yield
