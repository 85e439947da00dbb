"""The OpenAPI document says what the server does, and the server does no more than it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.effort import share
from tests.service.api.test_every_route import Scene, furnish
from tests.service.module_server import House, house

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server for all tests of this module."""
    with house(tmp_path_factory.mktemp("openapi")) as opened:
        yield opened


@pytest.fixture(scope="module")
def document(here: House) -> dict[str, Any]:
    """The document."""
    found: dict[str, Any] = here.client.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every operation of REST."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/api/"):
                yield method, path, operation


def test_the_document_is_complete(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert document["info"]["license"]["identifier"] == "Apache-2.0"
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    tags = {tag["name"] for tag in document["tags"]}
    names = []
    for method, path, operation in operations(document):
        names.append(operation["operationId"])
        assert operation["operationId"].isidentifier()
        assert operation["description"], f"{method} {path} has no description"
        assert operation["summary"]
        assert set(operation["tags"]) <= tags, f"{path}: {operation['tags']} is described nowhere"
        assert {"HTTPBearer": []} in operation["security"]
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), f"{method} {path}: {parameter['name']} has no description"
    assert len(names) == len(set(names)) > 40


def test_every_refusal_is_declared(document: dict[str, Any]) -> None:
    responses = document["components"]["responses"]
    for method, path, operation in operations(document):
        declared = operation["responses"]
        wanted = {"400", "401", "403", "422", "429", "503"}
        wanted |= {"404"} if "{" in path else set()
        wanted |= {"409", "413"} if method != "get" else set()
        assert wanted <= set(declared), f"{method} {path} does not declare {wanted - set(declared)}"
        assert any(status.startswith("2") for status in declared)
        for status, answer in declared.items():
            if "$ref" in answer:
                content = responses[status]["content"]
                assert set(content) == {"application/problem+json"}
            elif status.startswith("4") and status != "416":
                raise AssertionError(f"{method} {path}: {status} is no problem document")


def test_every_property_is_described(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        assert "HTTPValidationError" not in name
        for field, about in schema.get("properties", {}).items():
            if name != "Problem":
                assert about.get("description") or "$ref" in about, f"{name}.{field} has no description"


LEFT_OUT = {
    "revoke_token",  # it would take away what the calls are made with
    "check_place",  # it asks hosts outside
    "send_test_notice",  # likewise
    "look_at_machines",  # it asks all engines of this machine
    "reap_machines",
}

OFTEN = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def try_everything(here: House, examples: int) -> list[str]:
    """Call every operation with what fits its description and with what does not; what breaks the server's word."""
    # Here, for its import takes a second, and each of pytest's workers imports this module.
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.core.result import Ok
    from schemathesis.specs.openapi import checks

    kept = (
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    )
    described = schemathesis.openapi.from_asgi("/openapi.json", here.client.app)
    scene = furnish(here)
    wrong, count = [], 0
    every = list(described.get_all_operations())
    assert all(isinstance(found, Ok) for found in every)
    operations = [found.ok() for found in every if isinstance(found, Ok)]
    # What removes things comes last: there is more to try as long as they are there.
    for operation in sorted(operations, key=lambda one: one.method == "delete"):
        if operation.definition.raw["operationId"] in LEFT_OUT:
            continue
        for mode in schemathesis.GenerationMode:

            @settings(OFTEN, max_examples=examples)
            @given(operation.as_strategy(generation_mode=mode))
            def check(case: Any) -> None:
                nonlocal count
                count += 1
                if count % 2 and case.path_parameters:
                    case.path_parameters |= known(case.path, case.path_parameters, scene)
                if count % 2 and isinstance(case.body, dict) and "application" in case.body:
                    case.body["application"] = here.hello
                case.call_and_validate(headers=here.root, checks=kept)

            try:
                check()
            except Exception as error:
                wrong.append(f"{operation.label}: {error}")
    assert count > 20 * examples, "the operations were not found"
    return wrong


def known(path: str, given_: dict[str, Any], scene: Scene) -> dict[str, Any]:
    """Things that are there, in the place of those of a call, which are almost never."""
    found = {}
    for name in given_:
        word = path.partition(f"/{{{name}")[0].rpartition("/")[2]
        if (value := scene.things.get(f"{word}.{name}")) is not None:
            found[name] = value
    return found


@pytest.mark.timeout(900)
def test_nothing_that_is_sent_breaks_the_servers_word(tmp_path: Path) -> None:
    with house(tmp_path) as own:
        assert try_everything(own, share(30, 1)) == []
