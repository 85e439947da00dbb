"""A real browser on a real server: one of each for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from tests.service.web.sample_server import PASSWORD, Stage, people, stage

from tradewind.service.context import Context, open_context
from tradewind.service.settings import ServiceSettings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Opener = Callable[..., "Page"]


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server with a worker, people and requests."""
    with stage(tmp_path_factory.mktemp("web")) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """A service with people, without a server: for pages as the server makes them."""
    folder = tmp_path_factory.mktemp("pages")
    context = open_context(ServiceSettings(), f"sqlite:///{folder}/service.db", folder / "home")
    people(context)
    yield context
    context.close()


@pytest.fixture
def open_page(browser: Browser, scene: Stage) -> Iterator[Opener]:
    """Opens pages as somebody; at the end none may have complained, or asked another host for anything."""
    wrong: list[str] = []
    contexts = []

    def opener(name: str = "ann", *, phone: bool = False, expected: str = "", **options: object) -> Page:
        size = {"width": 375, "height": 812} if phone else {"width": 1280, "height": 800}
        context = browser.new_context(viewport=size, base_url=scene.url, **options)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(15_000)
        page = context.new_page()

        def complain(text: str) -> None:
            if not expected or expected not in text:
                wrong.append(text)

        page.on("console", lambda said: complain(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complain(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith((scene.url, "data:")) else complain(sent.url))
        if name:
            # The cookie of a session, without the form: that has a test of its own.
            session = scene.context.accounts.sign_in(name, PASSWORD, "127.0.0.1", "test")
            context.add_cookies([{"name": "tradewind_session", "value": session.secret, "url": scene.url}])
        return page

    yield opener
    for context in contexts:
        context.close()
    assert wrong == []
