"""Registering, finding, retiring; who sees what; files that are handed in."""

from __future__ import annotations

import pytest

from tradewind.errors import ConflictError, ForbiddenError, FormError, NotFoundError, SpecError
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.service.settings import ServiceSettings

TEXT = """\
name: heat
job: {command: [cat, "{{ mesh }}", "--size={{ size }}"]}
application:
  title: Heat
  fields:
    size: {type: integer, default: 64}
    mesh: {type: file, required: false, suffix: .msh}
"""


@pytest.fixture
def settings() -> ServiceSettings:
    return ServiceSettings(upload_mib=1.0)


def test_versions_are_counted_and_never_change(context: Context, ann: Principal) -> None:
    apps = context.applications
    first = apps.register(ann, TEXT)
    assert apps.register(ann, TEXT) == first, "the same document is the same version"
    second = apps.register(ann, TEXT.replace("64", "65"))
    assert (first.reference, second.reference) == ("heat@1", "heat@2")
    assert apps.get(ann, "heat") == second
    assert apps.get(ann, "heat@1") == first
    assert [row.version for row in apps.versions(ann, "heat")] == [2, 1]
    assert apps.form(ann, "heat@1").defaults == {"size": 64}
    assert apps.form(ann, "heat").defaults == {"size": 65}


def test_a_wrong_one_is_not_registered(context: Context, ann: Principal) -> None:
    with pytest.raises(SpecError, match=r"mine\.yaml:6: application\.fields\.size\.type"):
        context.applications.register(ann, TEXT.replace("integer", "whole"), file="mine.yaml")
    assert context.applications.list(ann) == []


def test_a_mapping_is_as_good_as_text(context: Context, ann: Principal) -> None:
    document = {
        "name": "yes",
        "job": {"command": ["cat", "0o17"], "env": {"A": "1:30"}},
        "application": {"fields": {"n": {"type": "text", "default": "on"}}},
    }
    row = context.applications.register(ann, document)
    spec = context.applications.check(ann, row.document).spec
    assert (spec.name, spec.job.command, spec.job.env) == ("yes", ("cat", "0o17"), {"A": "1:30"})


@pytest.mark.slow
def test_another_tenants_is_as_if_it_were_not_there(context: Context, ann: Principal, bob: Principal) -> None:
    apps = context.applications
    apps.register(ann, TEXT)
    for name in ("heat", "heat@1", "physics/heat", "physics/heat@1"):
        with pytest.raises(NotFoundError) as other:
            apps.get(bob, name)
        with pytest.raises(NotFoundError) as none:
            apps.get(bob, name.replace("heat", "haet"))
        assert str(other.value) == str(none.value).replace("haet", "heat")
        with pytest.raises(NotFoundError):
            apps.form(bob, name)
        with pytest.raises(NotFoundError):
            apps.retire(bob, name)
    assert apps.list(bob) == []


@pytest.mark.slow
def test_shared_ones_are_for_all_and_only_administrators_share(
    context: Context, ann: Principal, bob: Principal, root: Principal
) -> None:
    apps = context.applications
    with pytest.raises(ForbiddenError):
        apps.register(ann, TEXT, shared=True)
    shared = apps.register(root, TEXT, shared=True)
    own = apps.register(ann, TEXT.replace("title: Heat", "title: Mine"))
    assert apps.get(bob, "heat") == shared
    assert apps.get(ann, "heat") == own, "one's own comes first"
    assert apps.get(ann, "/heat") == shared
    assert apps.get(root, "physics/heat") == own
    assert (shared.trusted, own.trusted) == (True, False)
    assert {(row.tenant, row.name) for row in apps.list(root)} == {("", "heat"), ("physics", "heat")}
    with pytest.raises(ForbiddenError, match="only an administrator may retire it"):
        apps.retire(bob, "heat")


@pytest.mark.slow
def test_what_is_retired_begins_nothing_more(context: Context, ann: Principal) -> None:
    apps = context.applications
    apps.register(ann, TEXT)
    second = apps.register(ann, TEXT.replace("64", "65"))
    apps.retire(ann, "heat@2")
    assert apps.get(ann, "heat").version == 1
    with pytest.raises(ConflictError, match="heat@2 was retired"):
        apps.get(ann, "heat@2")
    assert apps.by_id(second.id).state == "retired", "requests of it are still carried out"
    apps.retire(ann, "heat")
    assert apps.list(ann) == []
    with pytest.raises(NotFoundError):
        apps.get(ann, "heat")
    assert apps.get(ann, "heat", retired=True).version == 2
    assert apps.register(ann, TEXT).version == 3, "numbers are not used again"


@pytest.mark.slow
def test_a_retired_one_gives_way_to_the_shared_one_of_its_name(
    context: Context, ann: Principal, root: Principal
) -> None:
    apps = context.applications
    shared = apps.register(root, TEXT, shared=True)
    own = apps.register(ann, TEXT.replace("64", "65"))
    assert (shared.address, own.address) == ("/heat@1", "physics/heat@1")
    assert apps.get(ann, "heat@1") == own
    assert [apps.form(ann, row.address).address for row in (shared, own)] == ["/heat@1", "physics/heat@1"]
    apps.retire(ann, "heat")
    assert apps.get(ann, "heat@1") == shared
    with pytest.raises(ConflictError, match="heat@1 was retired"):
        apps.get(ann, own.address)
    apps.retire(root, "/heat")
    with pytest.raises(ConflictError, match="heat@1 was retired"):
        apps.get(ann, "heat@1")


@pytest.mark.parametrize(
    "name", ["", "@", "@1", "heat@", "heat@x", "heat@99", "heat@" + "9" * 30, "/", "../heat", "x\0"]
)
def test_names_of_nothing(context: Context, ann: Principal, name: str) -> None:
    context.applications.register(ann, TEXT)
    with pytest.raises(NotFoundError):
        context.applications.get(ann, name)


def test_a_backend_that_is_not_there_cannot_be_named(context: Context, ann: Principal, root: Principal) -> None:
    text = TEXT.replace("application:\n", "application:\n  backend: cloud\n")
    with pytest.raises(NotFoundError, match="there is no backend 'cloud'"):
        context.applications.register(ann, text)
    context.backends.set(root, "cloud", "users: admins")
    with pytest.raises(NotFoundError, match="there is no backend 'cloud'"):
        context.applications.register(ann, text)
    assert context.applications.register(root, text).version == 1


# ---------------------------------------------------------------------- files


@pytest.mark.slow
def test_files_are_handed_in_once_and_named_by_what_they_hold(context: Context, ann: Principal) -> None:
    apps = context.applications
    row = apps.register(ann, TEXT)
    kept = apps.upload(ann, "C:\\meshes\\wing.msh", b"points")
    assert kept["name"] == "wing.msh"
    inline = {"name": "wing.msh", "text": "points"}
    assert apps.values(ann, row, {"mesh": inline}) == {"size": 64, "mesh": kept}
    assert apps.values(ann, row, {"mesh": {**kept, "size": 1}}) == {"size": 64, "mesh": kept}, "its size is known"
    assert apps.values(ann, row, {}) == {"size": 64}


@pytest.mark.slow
def test_another_tenants_file_is_not_there(context: Context, ann: Principal, bob: Principal, root: Principal) -> None:
    apps = context.applications
    row = apps.register(root, TEXT, shared=True)
    kept = apps.upload(ann, "wing.msh", b"points")
    with pytest.raises(FormError, match="mesh: this file was not handed in"):
        apps.values(bob, row, {"mesh": kept})
    apps.upload(bob, "mine", b"points")
    assert apps.values(bob, row, {"mesh": kept})["mesh"]["size"] == 6


@pytest.mark.slow
def test_a_tenants_files_take_no_more_than_they_may(context: Context, ann: Principal, bob: Principal) -> None:
    apps = context.applications
    apps.upload(ann, "a", b"a" * 700_000)
    apps.upload(ann, "again", b"a" * 700_000)
    with pytest.raises(ConflictError, match="the files of physics take more than the 1 MiB"):
        apps.upload(ann, "b", b"b" * 700_000)
    assert apps.upload(bob, "b", b"b" * 700_000)["size"] == 700_000


def test_a_file_that_comes_in_pieces_is_the_same_file(context: Context, ann: Principal, bob: Principal) -> None:
    apps = context.applications
    pieces = [apps.upload_piece(ann, data) for data in (b"a" * 1000, b"b" * 500, b"a" * 1000)]
    assert pieces[0] == pieces[2]
    with pytest.raises(NotFoundError, match=r"piece .* is not kept"):
        apps.join_pieces(bob, "x.msh", pieces)
    whole = apps.join_pieces(ann, "x.msh", pieces)
    assert whole == apps.upload(ann, "x.msh", b"a" * 1000 + b"b" * 500 + b"a" * 1000)
    assert apps.upload_room(ann) == 2**20 - 2500, "the pieces are gone"
    with pytest.raises(NotFoundError):
        apps.join_pieces(ann, "x.msh", pieces)
    with pytest.raises(ConflictError, match="more than the 1 MiB"):
        apps.upload_piece(ann, bytes(2**20 - 2000))
    assert apps.upload_room(bob) == 2**20
