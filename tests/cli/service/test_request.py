"""``tradewind request``, ``login``, ``logout`` and ``recommend --server``: on a server, and on this machine's store."""

from __future__ import annotations

import io
import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.test_client import SLOW, Place
from tests.service.live_server import not_uploaded, served
from tests.service.module_server import house

from tradewind.cli.app import run
from tradewind.cli.service import local_client
from tradewind.cli.service.local_client import LocalClient
from tradewind.service.requests.worker import RequestWorker
from tradewind.service.settings import ServiceSettings


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with a worker, for all tests of this module."""
    settings = ServiceSettings(event_seconds=0.02, runs=2)
    with house(tmp_path_factory.mktemp("request"), settings) as here, served(here.context) as url:
        stop = threading.Event()
        worker = threading.Thread(target=RequestWorker(here.context).run, args=(stop,), daemon=True)
        worker.start()
        with Place(here, url).client("root") as root:
            root.register(SLOW.replace("sleep 1; ", ""), shared=True)
        yield Place(here, url)
        stop.set()
        worker.join(20.0)


@pytest.fixture
def server(place: Place, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its address, with ann's token in the environment."""
    monkeypatch.setenv("TRADEWIND_TOKEN", place.house.ann["Authorization"].removeprefix("Bearer "))
    monkeypatch.setenv("TRADEWIND_SERVER", place.url)
    return place.url


Output = pytest.CaptureFixture[str]


@pytest.mark.slow
def test_a_request_from_the_command_line(server: str, capsys: Output, tmp_path: Path) -> None:
    assert run(["request", "submit", "slow", "--name", "by hand", "--wait"]) == 0
    said = capsys.readouterr().out
    assert "pending       asked for by ann" in said
    assert "done" in said.splitlines()[-1]
    assert run(["request", "list", "--text", "by hand", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    number = str(found["id"])
    assert run(["request", "list", "--text", "by hand"]) == 0
    assert "by hand" in capsys.readouterr().out
    assert run(["request", "show", number]) == 0
    shown = capsys.readouterr().out
    assert f"Request {number}: by hand" in shown
    assert "configuration nodes=1" in shown
    assert run(["request", "logs", number]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    assert run(["request", "logs", number, "--stderr", "--follow"]) == 0
    assert capsys.readouterr().out == "oh\n"
    assert run(["request", "files", number]) == 0
    assert "outputs/table.csv" in capsys.readouterr().out
    assert run(["request", "download", number, "--to", str(tmp_path / "got")]) == 0
    assert (tmp_path / "got" / "table.csv").read_text() == "1,2\n"
    assert run(["request", "wait", number]) == 0
    assert run(["request", "retry", number]) == 16
    assert "has ended well" in capsys.readouterr().err
    assert run(["request", "delete", number]) == 0
    assert run(["request", "show", number]) == 16


@pytest.mark.slow
def test_parameters_configuration_and_searches(server: str, capsys: Output, tmp_path: Path) -> None:
    words = ["hello", "-p", "words=a b", "-p", "times=3", "-c", "nodes=2", "--key", "k1", "--json"]
    assert run(["request", "submit", *words]) == 0
    first = json.loads(capsys.readouterr().out)
    assert run(["request", "list"]) == 0
    assert "words=a b, times=3" in capsys.readouterr().out
    assert first["document"]["parameters"] == {"words": "a b", "times": 3}
    assert first["document"]["configuration"] == {"nodes": "2"}, "as it was typed: the parameter reads it"
    assert run(["request", "submit", *words]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == first["id"]
    assert (
        run(
            [
                "request",
                "submit",
                "hello",
                "--trials",
                "1",
                "--budget",
                "$1",
                "--deadline",
                "1m",
                "--try",
                "nodes=2",
                "--json",
            ]
        )
        == 0
    )
    search = json.loads(capsys.readouterr().out)
    assert search["kind"] == "search"
    assert search["document"]["search"] == {
        "budget": {"dollars": "$1", "trials": 1},
        "deadline": "1m",
        "try_first": [{"nodes": "2"}],
    }
    assert run(["request", "wait", str(search["id"]), "--json"]) == 0
    ended = json.loads(capsys.readouterr().out)
    assert ended["state"] == "done"
    assert ended["progress"]["best"]["configuration"]["nodes"] == 2
    assert run(["request", "submit", "hello", "--try", "nodes=2"]) == 3
    assert capsys.readouterr().err.startswith("tradewind: --try is for a search (add --search or --budget 2")
    document = tmp_path / "asked.yaml"
    document.write_text("application: hello\nparameters: {words: from a file, times: 1}\n")
    assert run(["request", "submit", str(document), "-p", "times=2", "--name", "file", "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert asked["document"]["parameters"] == {"words": "from a file", "times": 2}
    job = tmp_path / "job.yaml"
    job.write_text("name: own\njob: {command: [echo, hi]}\nspace: {nodes: [1]}\noffers: {provider: [local]}\n")
    # A program that a user brings: this backend runs none, and says so before anything begins.
    assert run(["request", "submit", str(job)]) == 16
    assert "only programs of its administrators" in capsys.readouterr().err


@pytest.mark.slow
def test_an_upload_is_tried_again(server: str, place: Place, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["request", "submit", "hello", "-c", "nodes=1", "--wait", "--json"]) == 0
    number = json.loads(capsys.readouterr().out)["id"]
    assert run(["request", "upload", str(number)]) == 16
    assert "go nowhere" in capsys.readouterr().err
    address = not_uploaded(place.house.context, number, "failed", "it does not let us in")
    assert run(["request", "upload", str(number)]) == 0
    assert capsys.readouterr().out == f"The results of request {number} are uploaded to {address} within moments\n"
    # The same on the store of this machine.
    monkeypatch.delenv("TRADEWIND_SERVER")
    assert run(["request", "upload", str(number), "--json", "--database", place.house.context.url]) == 0
    assert json.loads(capsys.readouterr().out) == {"state": "waiting", "address": address, "problem": ""}


@pytest.mark.slow
def test_a_failure_is_reported_with_its_exit_code(server: str, place: Place, capsys: Output) -> None:
    with place.client("root") as root:
        root.register(SLOW.replace("name: slow", "name: broken").replace("echo two;", "exit 3;"), shared=True)
    assert run(["request", "submit", "broken", "--wait"]) == 7
    assert "is failed" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "999999"], 16, "no such request"),
        (["cancel", "999999"], 16, "no such request"),
        (["logs", "999999"], 16, "no such request"),
        (["files", "999999"], 16, "no such request"),
        (["download", "999999"], 16, "no such request"),
        (["show", "x"], 2, "integer"),
        (["submit", "nothing"], 16, "no application 'nothing'"),
        (["submit", "hello", "-p", "times"], 3, "--param"),
        (["submit", "hello", "-p", "times=1000"], 3, "times"),
        (["submit", "hello", "-p", "words=@/nothing/here"], 3, "cannot be read"),
        (["submit", "hello", "-c", "nodes=7"], 3, "not in the space"),
        (["submit", "missing.yaml"], 3, "missing.yaml"),
        (["submit", "hello", "--user", "ann"], 3, "--user is for this machine"),
        (["list", "--state", "sleeping"], 3, "no state 'sleeping'"),
        (["wait", "999999", "--timeout", "soon"], 3, "no duration|not a duration"),
    ],
)
def test_wrong_words_are_one_line(server: str, capsys: Output, words: list[str], code: int, said: str) -> None:
    assert run(["request", *words]) == code
    error = capsys.readouterr().err
    assert any(word in error for word in said.split("|")), error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_login_keeps_a_token_for_this_user_alone(
    place: Place, capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "mine"))
    file = tmp_path / "mine" / "tokens.json"
    assert run(["request", "list", "--server", place.url]) == 16
    assert f"tradewind login {place.url}" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("tw_wrong\n"))
    assert run(["login", place.url, "--token-stdin"]) == 16
    assert not file.exists()
    token = place.house.ann["Authorization"].removeprefix("Bearer ")
    monkeypatch.setattr("sys.stdin", io.StringIO(token + "\n"))
    assert run(["login", place.url + "/", "--token-stdin"]) == 0
    assert "as ann (user) of physics" in capsys.readouterr().out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run(["request", "list", "--server", place.url]) == 0
    file.chmod(0o644)
    assert run(["request", "list", "--server", place.url]) == 3
    assert "chmod 600" in capsys.readouterr().err
    file.chmod(0o600)
    assert run(["logout", place.url]) == 0
    assert json.loads(file.read_text()) == {}
    assert run(["logout", place.url]) == 16
    file.write_text("{")
    assert run(["request", "list", "--server", place.url]) == 3
    assert run(["login", "nowhere", "--token-stdin"]) == 3


@pytest.mark.slow
def test_no_server_there(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_TOKEN", "tw_x")
    assert run(["request", "list", "--server", "http://127.0.0.1:9"]) == 16
    assert "does not answer" in capsys.readouterr().err


@pytest.mark.slow
def test_the_right_configuration_from_a_server(server: str, capsys: Output, tmp_path: Path) -> None:
    assert run(["recommend", "hello", "--server", server, "-p", "times=2"]) == 0
    assert "hello@1 with times=2, words=hello on local" in capsys.readouterr().out.replace(
        "words=hello, times=2", "times=2, words=hello"
    )
    job = tmp_path / "job.yaml"
    job.write_text("name: hello\njob: {command: [echo]}\nspace: {nodes: [1]}\n")
    assert run(["recommend", str(job), "--server", server, "--top", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["application"] == "hello@1"
    assert len(found["candidates"]) == 1
    assert run(["recommend", "nothing", "--server", server]) == 16


@pytest.mark.slow
def test_the_same_on_this_machine(
    place: Place, capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever sits before the server's machine needs no token, and says whose a request is."""
    context = place.house.context
    monkeypatch.setenv("TRADEWIND_HOME", str(context.data_folder))
    monkeypatch.setenv("LOGNAME", "somebody")
    database = ["--database", context.url]
    assert run(["request", "submit", "slow", "--name", "local", "--user", "bob", "--wait", *database]) == 0
    assert run(["request", "list", "--text", "local", "--json", *database]) == 0
    (found,) = [one for one in json.loads(capsys.readouterr().out.splitlines()[-1]) if one["name"] == "local"]
    assert (found["user"], found["state"]) == ("bob", "done")
    number = str(found["id"])
    assert run(["request", "show", number, *database]) == 0
    assert "by bob of biology" in capsys.readouterr().out
    assert run(["request", "logs", number, "--follow", *database]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    assert run(["request", "download", number, "outputs/table.csv", "--to", str(tmp_path), *database]) == 0
    assert (tmp_path / "table.csv").read_text() == "1,2\n"
    assert run(["request", "files", number, *database]) == 0
    with monkeypatch.context() as busy:
        busy.setattr(LocalClient, "delete", lambda *_: None)  # as one that still runs
        assert run(["request", "delete", number, *database]) == 0
    assert "is being cancelled" in capsys.readouterr().out
    assert run(["request", "delete", number, *database]) == 0
    assert capsys.readouterr().out == f"Request {number} is removed\n"
    assert run(["request", "submit", "slow", *database]) == 3
    assert "--user NAME" in capsys.readouterr().err
    assert run(["request", "submit", "slow", "--user", "bobb", *database]) == 3
    assert "did you mean 'bob'?" in capsys.readouterr().err
    assert run(["request", "submit", "slow", "--user", "bob", "--json", *database]) == 0
    again = str(json.loads(capsys.readouterr().out)["id"])
    assert run(["request", "wait", again, "--timeout", "1m", *database]) == 0
    assert run(["request", "cancel", again, *database]) == 16
    assert run(["request", "submit", "slow", "--user", "bob", *database]) == 0
    capsys.readouterr()
    monkeypatch.setattr(local_client, "_MOST_ROWS", 1)
    assert run(["request", "list", "--limit", "2", "--json", *database]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2, "more than the service gives at once"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["request", "list", "--database", "sqlite:///x.db"], "--server and --database are two places"),
        (["application", "list", "--database", "sqlite:///x.db"], "--server and --database are two places"),
        (["recommend", "hello", "--searcher", "done"], "--searcher is for this machine's store"),
        (["recommend", "hello", "--store", "sqlite:///x.db"], "--store is for this machine's store"),
    ],
)
def test_what_a_server_would_ignore_is_refused(words: list[str], said: str, capsys: Output) -> None:
    assert run([*words, "--server", "http://127.0.0.1:9"]) == 3
    assert capsys.readouterr().err.startswith(f"tradewind: {said}")


def test_a_store_that_is_named_counts_for_more_than_the_environment(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_SERVER", "http://127.0.0.1:9")
    assert run(["request", "list", "--database", f"sqlite:///{tmp_path}/here.db"]) == 0
