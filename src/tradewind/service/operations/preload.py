"""Modules that a process of the service loads before it begins, so that the first callers do not wait for them."""

from __future__ import annotations

import gc
import importlib
import threading

HTTP_MODULES = (
    "tradewind.engine.search_builder",
    "tradewind.selector.offer_search",
    "tradewind.selector.attributes",
    "tradewind.selector.exact",
    *(
        f"tradewind.selector.catalogue.{name}"
        for name in ("aws", "azure", "gcp", "csv_file", "local", "skypilot", "sparecores", "vantage")
    ),
    "tradewind.interpreter.json_lines",
    "tradewind.searcher.default",
    "tradewind.deployer.provisioner.none",
    "tradewind.deployer.runner.process",
)
"""Modules needed to check a request."""

WORKER_MODULES = (
    *HTTP_MODULES,
    "tradewind.deployer.compatibility",
    "tradewind.deployer.lifecycle.deployer",
    "tradewind.deployer.bundle",
    "tradewind.interpreter.base",
    "tradewind.searcher.bayesian",
    "tradewind.searcher.done",
)
"""Modules needed to carry one out."""


PAGE_MODULES = ("tradewind.reporting.study.documents", "scipy.special")
"""Modules needed to draw the figures of a study."""


def prepare_pages() -> threading.Thread:
    """Compile the templates and pack the files of the pages, in a thread beside the first callers.

    Each first view would otherwise pay for its own: up to a second of processor time.
    """
    from tradewind.service.web.rendering import environment
    from tradewind.service.web.static_assets import assets

    def prepare() -> None:
        assets()
        for name in environment().list_templates(extensions=["j2"]):
            environment().get_template(name)
        for name in PAGE_MODULES:
            importlib.import_module(name)

    thread = threading.Thread(target=prepare, name="tradewind-pages", daemon=True)
    thread.start()
    return thread


def load_modules(modules: tuple[str, ...]) -> None:
    """Import modules, and collect the garbage of the imports for the last time.

    Args:
        modules: Their names; what they import only when it is used is left to them.
    """
    for name in modules:
        importlib.import_module(name)
    # All of it stays: looking through it again would hold up whoever waits at that moment by 0.1 s each time.
    gc.collect()
    gc.freeze()
