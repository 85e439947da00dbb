"""What a process of the service loads before it begins."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from jinja2 import Environment

from tradewind.service.operations import preload
from tradewind.service.web.rendering import environment
from tradewind.service.web.static_assets import assets

_BEGIN = """
import sys
from pathlib import Path
from tradewind.service.context import open_context
from tradewind.service.operations import preload
from tradewind.service.accounts.identity import Principal
from tradewind.service.settings import ServiceSettings

folder = Path(sys.argv[1])
context = open_context(ServiceSettings(), f"sqlite:///{folder}/tradewind.db", folder)
if sys.argv[2] == "register":
    context.accounts.add_user("ann", role="admin")
user = context.accounts.store.user_named("ann")
who = Principal(user.id, user.name, user.role, user.tenant)
"""
_REGISTER = """
application = "name: one\\njob: {command: ['true']}\\nspace: {instance: {vcpu: [2, 4]}}\\noffers: {provider: [aws]}\\n"
context.applications.register(who, application + "application: {fields: {}}\\n", shared=True)
"""
_SUBMIT = """
preload.load_modules(preload.HTTP_MODULES)
before = set(sys.modules)
context.requests.submit(who, {"application": "one"})
print(*sorted(name for name in set(sys.modules) - before if name.startswith("tradewind")))
"""


@pytest.mark.slow
def test_the_first_request_waits_for_no_import(tmp_path: Path) -> None:
    for what, script in (("register", _REGISTER), ("submit", _SUBMIT)):
        words = [sys.executable, "-c", _BEGIN + script, str(tmp_path), what]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


@pytest.mark.slow
@pytest.mark.parametrize("modules", [preload.HTTP_MODULES, preload.WORKER_MODULES], ids=["accepting", "carrying out"])
def test_what_is_loaded_is_there_and_not_looked_through_again(modules: tuple[str, ...]) -> None:
    script = f"import gc, sys; from tradewind.service.operations import preload; preload.load_modules({modules!r}); "
    script += f"assert all(name in sys.modules for name in {modules!r}); assert gc.get_freeze_count() > 10_000"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_first_view_waits_for_no_template_and_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    preload.prepare_pages().join()
    monkeypatch.setattr(Environment, "compile", lambda *_: pytest.fail("a template is compiled at the first view"))
    monkeypatch.setattr(gzip, "compress", lambda *_, **__: pytest.fail("a file is packed at the first view"))
    for name in ("request.html.j2", "requests.html.j2", "study.html.j2", "sign_in.html.j2", "results.html.j2"):
        environment().get_template(name)
    assert assets().get("js/charts/echarts.js").packed
    assert all(name in sys.modules for name in preload.PAGE_MODULES)
