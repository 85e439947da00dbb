"""Paper 5's documents: templates, hooks, and the backend that is meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tradewind.errors import ForbiddenError, InputError, NotFoundError
from tradewind.service.applications.backends import Backend
from tradewind.service.requests.request_document import VirtualClusterRequestModel, read_document
from tradewind.service.requests.virtual_cluster_request import (
    SCRIPT,
    USER_DATA,
    application_of,
    backend_of,
    check_hooks,
    files_of,
    hooks_of,
    job_name,
)


def figure(**fields: Any) -> VirtualClusterRequestModel:
    found = read_document({"template": "#!/bin/sh\n", **fields}).figure
    assert found is not None
    return found


def backend(name: str, runner: str, provisioner: str = "none") -> Backend:
    return Backend(name, deploy={"runner": {"use": runner}, "provisioner": provisioner})


BACKENDS = [
    backend("local", "process"),
    backend("pool", "htcondor"),
    backend("big", "slurm"),
    backend("cloud", "ssh", "opennebula"),
]


def test_a_template_is_filled_with_user_data_and_resources() -> None:
    asked = figure(
        template="#!/bin/sh\n# {{ nodes }} x {{ resources.cpu }} {{ memory }}\n{% for f in files %}cat {{ f }}\n"
        "{% endfor %}echo '{{ user_data[\"odd key\"] }}' {{ inner.deep }}\n",
        resources={"nodes": 2, "cpu": 4, "memory": 512.5},
        user_data={"files": ["a", "b"], "odd key": "x", "inner": {"deep": 7}},
    )
    files = files_of(asked)
    assert files[SCRIPT].decode() == "#!/bin/sh\n# 2 x 4 512.5\ncat a\ncat b\necho 'x' 7\n"
    assert json.loads(files[USER_DATA]) == asked.user_data


def test_a_submit_description_becomes_a_script() -> None:
    asked = figure(template="executable = /bin/echo\narguments = {{ key1 }}\nqueue\n", user_data={"key1": "value1"})
    assert files_of(asked)[SCRIPT].decode().endswith("exec /bin/echo value1\n")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("#!/bin/sh\n{{ missing }}\n", "names 'missing'"),
        ("#!/bin/sh\n{{ key1\n", "cannot read the template"),
        ("#!/bin/sh\n{{ ''.__class__.__mro__ }}\n", "fails"),
        ("#!/bin/sh\n{{ key1.__init__.__globals__ }}\n", "fails"),
        ("#!/bin/sh\n{% include '/etc/passwd' %}\n", "'include', which is not allowed"),
        ("#!/bin/sh\n{% for i in range(10**9) %}x{% endfor %}\n", "fails"),
        ("#!/bin/sh\n{{ 'x' * 10**9 }}\n", "fails"),
        ("hello {{ key1 }}\n", "neither a script nor a submit description"),
    ],
)
def test_a_template_can_do_nothing_but_be_filled_in(template: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        files_of(figure(template=template, user_data={"key1": "value1"}))


@pytest.mark.slow
def test_hooks_keep_their_moments_and_see_the_data() -> None:
    hooks = [
        {"stage": "submitting", "condition": "before", "name": "fetch.sh --from {{ source }} 'two words'"},
        {"stage": "submitting", "condition": "before", "name": "second"},
        {"stage": "executing", "condition": "after", "name": "measure"},
        {"stage": "executing", "condition": "error", "name": "mail me"},
        {"stage": "pending", "condition": "before", "name": "first"},
        {"stage": "done", "condition": "after", "name": "last"},
    ]
    found = hooks_of(figure(hooks=hooks, user_data={"source": "ftp://x"}))
    words = {moment: [hook["command"] for hook in listed] for moment, listed in found.items()}
    assert words == {
        "before_submitting": [["fetch.sh", "--from", "ftp://x", "two words"], ["second"]],
        "after_executing": [["measure"]],
        "on_error": [["mail", "me"]],
        "before_booting": [["first"]],
        "after_collecting": [["last"]],
    }
    with pytest.raises(InputError, match="is no command line"):
        hooks_of(figure(hooks=[{"stage": "booting", "name": "it's"}]))


def test_hooks_need_leave() -> None:
    asked = figure(hooks=[{"stage": "booting", "name": "x"}])
    with pytest.raises(ForbiddenError, match="hooks: they run on the server"):
        check_hooks(asked, allowed=False)
    check_hooks(asked, allowed=True)
    check_hooks(figure(), allowed=False)
    assert application_of(asked, "x")["deploy"]["hooks"].keys() == {"before_booting"}


def test_it_becomes_an_application_with_its_data_in_the_environment() -> None:
    asked = figure(user_data={"key-1": "v", "n": 3, "deep": {"x": 1}, "hole": "{{ x }}"}, outputs=["*.dat"])
    document = application_of(asked, "My job/é")
    assert document["name"] == "My job-"[:-1]
    assert document["job"]["env"] == {"TRADEWIND_DATA_KEY_1": "v", "TRADEWIND_DATA_N": "3"}
    assert document["job"]["outputs"] == ["*.dat"]
    assert document["space"] == {"instance": {}, "nodes": [1]}


@pytest.mark.parametrize(("given", "name"), [("a b", "a b"), ("", "request"), ("123", "request-123"), ("../x", "x")])
def test_names_of_jobs(given: str, name: str) -> None:
    assert job_name(given) == name


@pytest.mark.parametrize(
    ("scheduler", "maker", "found"),
    [
        ("", "", ""),
        ("slurm", "", "big"),
        ("htcondor", "", "pool"),
        ("pool", "", "pool"),
        ("htcondor", "opennebula", "cloud"),
        ("", "opennebula", "cloud"),
        ("", "cloud", "cloud"),
        ("", "local", "local"),
    ],
)
def test_the_backend_that_is_meant(scheduler: str, maker: str, found: str) -> None:
    fields: dict[str, Any] = {"scheduler": {"name": scheduler}} if scheduler else {}
    if maker:
        fields["backend"] = {"name": maker}
    assert backend_of(figure(**fields), BACKENDS) == found


def test_a_backend_that_is_not_there() -> None:
    with pytest.raises(NotFoundError, match=r"makes machines with aws .*there are: local, pool, big, cloud"):
        backend_of(figure(backend={"name": "aws"}), BACKENDS)
    with pytest.raises(NotFoundError, match="has the scheduler slurm"):
        backend_of(figure(scheduler={"name": "slurm"}), BACKENDS[:2])
