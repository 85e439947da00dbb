"""Where jobs run: who sets backends, who may choose them, whose programs run there."""

from __future__ import annotations

import pytest

from tradewind.errors import ConflictError, ForbiddenError, InputError, NotFoundError, SpecError
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications.backends import LOCAL
from tradewind.service.context import Context

ROOT = Principal(1, "root", "admin", "operations")
ANN = Principal(2, "ann", "user", "physics")
OWN = "name: mine\njob: {command: [a]}\napplication: {}\n"


def test_a_fresh_server_runs_jobs_on_its_own_machine(context: Context) -> None:
    (local,) = context.backends.list(ANN)
    assert (local.name, local.runner, local.users, local.own_code) == (LOCAL, "process", "everyone", False)
    assert context.backends.get(ANN) == local


def test_an_administrator_sets_replaces_and_removes(context: Context) -> None:
    backends = context.backends
    backends.set(ROOT, "cloud", "title: Cloud\ndeploy: {runner: {use: docker, network: none}}\n")
    assert [(one.name, one.title, one.runner) for one in backends.list(ANN)] == [
        ("cloud", "Cloud", "docker"),
        ("local", "This machine", "process"),
    ]
    backends.set(ROOT, "cloud", {"title": "Clouds"})
    assert backends.get(ANN, "cloud").title == "Clouds"
    backends.remove(ROOT, "cloud")
    with pytest.raises(NotFoundError, match="there is no backend 'cloud'"):
        backends.remove(ROOT, "cloud")
    backends.set(ROOT, "local", "users: admins\n")
    assert backends.list(ANN) == []
    backends.remove(ROOT, "local")
    assert [one.name for one in backends.list(ANN)] == ["local"], "the fresh one is there again"
    with pytest.raises(ConflictError, match="always there"):
        backends.remove(ROOT, "local")


def test_ordinary_users_change_none(context: Context) -> None:
    with pytest.raises(ForbiddenError):
        context.backends.set(ANN, "cloud", "{}")
    with pytest.raises(ForbiddenError):
        context.backends.remove(ANN, "local")


def test_one_that_is_closed_is_as_if_it_were_not_there(context: Context) -> None:
    context.backends.set(ROOT, "secret", "users: admins\n")
    with pytest.raises(NotFoundError) as closed:
        context.backends.get(ANN, "secret")
    with pytest.raises(NotFoundError) as none:
        context.backends.get(ANN, "secrets")
    assert str(closed.value) == str(none.value).replace("secrets", "secret")
    assert context.backends.get(ROOT, "secret").users == "admins"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("deploy: {runner: dokcer}\n", r"b\.yaml:1: deploy\.runner: there is no runner named 'dokcer' \(did you mean"),
        ("title: a\ndeploy:\n  runner: {use: docker, netwrk: none}\n", r"b\.yaml:3: .*did you mean 'network'"),
        ("offers: {vcpu: 8..4}\n", r"b\.yaml:1: offers\.vcpu"),
        ("users: nobody\n", r"b\.yaml:1: users: 'nobody' should be"),
        ("own_code: perhaps\n", r"b\.yaml:1: own_code: wanted true or false"),
        ("runner: docker\n", r"b\.yaml:1: unknown key 'runner'"),
        ("catalogues: {cvs: {path: x}}\n", r"b\.yaml:1: catalogues\.cvs: .*did you mean 'csv'"),
        ("- a\n", r"b\.yaml:1: is not a mapping"),
    ],
)
def test_a_wrong_one_is_refused_with_its_line(context: Context, text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        context.backends.set(ROOT, "cloud", text, file="b.yaml")
    assert [one.name for one in context.backends.list(ROOT)] == ["local"]


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 101, "a/b"])
def test_names_that_are_none(context: Context, name: str) -> None:
    with pytest.raises(InputError, match="no name for a backend"):
        context.backends.set(ROOT, name, "{}")


def test_programs_of_ordinary_users_run_only_where_they_may(context: Context) -> None:
    apps, backends = context.applications, context.backends
    own, theirs = apps.register(ANN, OWN), apps.register(ROOT, OWN, shared=True)
    assert backends.choose(ANN, theirs).name == "local"
    with pytest.raises(ForbiddenError, match="the backend local runs only programs of its administrators"):
        backends.choose(ANN, own)
    with pytest.raises(ForbiddenError):
        backends.choose(ANN, None)
    assert backends.choose(ROOT, None).name == "local"
    with pytest.raises(ForbiddenError):
        backends.choose(ROOT, own), "whoever starts it, it is ann's program"
    backends.set(ROOT, "box", "own_code: true\ndeploy: {runner: docker}\n")
    with pytest.raises(ForbiddenError, match="choose box"):
        backends.choose(ANN, own)
    assert backends.choose(ANN, own, "box").name == "box"
    assert backends.choose(ANN, None, "box").name == "box"


def test_an_application_names_its_own(context: Context) -> None:
    context.backends.set(ROOT, "box", "deploy: {runner: docker}\n")
    row = context.applications.register(ROOT, OWN.replace("{}", "{backend: box}"), shared=True)
    assert context.backends.choose(ANN, row).name == "box"
    assert context.backends.choose(ANN, row, "local").name == "local"
    context.backends.remove(ROOT, "box")
    with pytest.raises(NotFoundError, match="there is no backend 'box'"):
        context.backends.choose(ANN, row)
    with pytest.raises(NotFoundError, match="the backend 'box' was removed"):
        context.backends.by_name("box")
