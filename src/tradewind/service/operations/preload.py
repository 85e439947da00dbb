"""What a process of the service loads before it begins, so that the first ones who ask do not wait for it."""

from __future__ import annotations

import gc
import importlib

HTTP_MODULES = (
    "tradewind.engine.search_builder",
    "tradewind.selector.offer_search",
    "tradewind.selector.attributes",
    "tradewind.selector.exact",
    *(f"tradewind.selector.catalogue.{name}" for name in ("aws", "azure", "gcp", "csv_file", "local")),
    "tradewind.interpreter.json_lines",
)
"""What judging a request needs."""

WORKER_MODULES = (
    *HTTP_MODULES,
    "tradewind.deployer.compatibility",
    "tradewind.deployer.lifecycle.deployer",
    "tradewind.deployer.bundle",
    "tradewind.interpreter.base",
    "tradewind.searcher.default",
    "tradewind.searcher.bayesian",
    "tradewind.searcher.done",
)
"""What carrying one out needs."""


def load_modules(modules: tuple[str, ...]) -> None:
    """Import modules, and look for garbage in what there is by then for the last time.

    Args:
        modules: Their names; what they import only when it is used is left to them.
    """
    for name in modules:
        importlib.import_module(name)
    # All of it stays: looking through it again would hold up whoever waits at that moment by 0.1 s each time.
    gc.collect()
    gc.freeze()
