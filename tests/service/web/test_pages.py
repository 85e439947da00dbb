"""The pages as the server makes them: who sees what, what is refused, and what an error looks like."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.service.live_server import not_uploaded, principal
from tests.service.web.page_client import Visitor, words
from tests.service.web.sample_server import GREET, STATES, put

from tradewind.service.context import Context
from tradewind.store.sql.schema import request_events

EVIL = '<script>alert("1")</script>'


@pytest.fixture(scope="module")
def ann(shared: Context) -> Visitor:
    return Visitor(shared, "ann")


@pytest.fixture(scope="module")
def bob(shared: Context) -> Visitor:
    return Visitor(shared, "bob")


@pytest.fixture(scope="module")
def root(shared: Context) -> Visitor:
    return Visitor(shared, "root")


@pytest.fixture(scope="module")
def failed(shared: Context) -> int:
    return put(shared, principal(shared, "ann"), **STATES["failed"])


@pytest.mark.slow
def test_what_keeps_the_runs_of_a_request_is_on_its_page_and_in_the_list(shared: Context) -> None:
    words = "its machines are not given back yet: gcloud is signed out"
    who = principal(shared, "ann")
    number = put(shared, who, name="stuck", state="executing", progress={"trouble": words})
    ann = Visitor(shared, "ann")
    assert f"I{words[1:]}." in ann.get(f"/requests/{number}").text
    assert words in ann.get("/requests?text=stuck").text
    over = put(shared, who, name="stuck then", state="done", progress={"trouble": words})
    assert words[1:] not in ann.get(f"/requests/{over}").text


@pytest.mark.slow
def test_the_version_of_the_code_is_on_the_page_of_its_request(shared: Context, ann: Visitor) -> None:
    who, digest = principal(shared, "ann"), "ab12" * 16
    number = put(shared, who, name="kept", state="failed", plan={"code": digest})
    said = words(ann.get(f"/requests/{number}").text)
    assert (
        f"version {digest[:12]} . A retry runs it again; a request that is resubmitted takes the code of now." in said
    )
    assert "Runs the code" not in ann.get(f"/requests/{put(shared, who, name='plain', state='done')}").text


@pytest.mark.slow
def test_nobody_is_sent_to_the_door_and_back(shared: Context) -> None:
    nobody = Visitor(shared)
    answer = nobody.get("/requests?text=a&group=done")
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/sign-in?next=/requests%3Ftext%3Da%26group%3Ddone",
    )
    assert nobody.get("/requests", Accept="application/json").status_code == 401
    door = nobody.get("/sign-in?next=/requests")
    assert 'name="next" value="/requests"' in door.text


@pytest.mark.slow
@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_signing_in_leads_to_no_other_host(shared: Context, target: str) -> None:
    fields = {"name": "ann", "password": "correct horse battery", "next": target}
    answer = Visitor(shared).post("/sign-in", fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


@pytest.mark.slow
def test_what_is_wrong_at_the_door_is_said(shared: Context, root: Visitor) -> None:
    nobody = Visitor(shared)
    wrong = nobody.post("/sign-in", {"name": "eve", "password": "no"})
    assert wrong.status_code == 401
    assert "The name or the password is wrong" in words(wrong.text)
    eve = shared.accounts.store.user_named("eve")
    shared.accounts.store.change(eve.id, state="locked")
    locked = nobody.post("/sign-in", {"name": "eve", "password": "correct horse battery"})
    assert "This account is locked" in words(locked.text)
    shared.accounts.store.change(eve.id, state="active")
    for _ in range(12):
        limited = nobody.post("/sign-in", {"name": "eve", "password": "no"})
    assert limited.status_code == 429
    assert "Too many attempts to sign in" in words(limited.text)
    assert int(limited.headers["retry-after"]) > 60


@pytest.mark.slow
def test_a_form_of_no_page_of_ours_changes_nothing(shared: Context, ann: Visitor, failed: int) -> None:
    for csrf in ("", "0" * 64):
        answer = ann.post(f"/requests/{failed}/delete", csrf=csrf)
        assert answer.status_code == 403
        assert "Load the page again" in words(answer.text)
    assert shared.requests.get(principal(shared, "ann"), failed).state == "failed"


@pytest.mark.slow
def test_what_is_anothers_is_not_there(bob: Visitor, failed: int) -> None:
    paths = ["/requests/{}" + rest for rest in ("", "?part=1", "/log/stdout", "/files/stdout")]
    paths.append("/requests/new?again={}")
    here, missing = [[bob.get(path.format(number)) for path in paths] for number in (failed, 999)]
    assert [answer.status_code for answer in here] == [404] * len(paths)
    assert [words(answer.text) for answer in here] == [words(answer.text) for answer in missing]
    actions = ("cancel", "retry", "delete", "link", "unlink", "upload")
    assert [bob.post(f"/requests/{failed}/{action}").status_code for action in actions] == [404] * 6
    assert "fine grid" not in bob.get("/requests").text


@pytest.mark.slow
def test_an_administrator_sees_all_and_whose(root: Visitor, failed: int) -> None:
    page = words(root.get("/requests").text)
    assert "fine grid" in page
    assert "ann (physics)" in page
    assert "fine grid" not in words(root.get("/requests?tenant=biology").text)


@pytest.mark.slow
def test_an_error_of_a_request_is_explained(ann: Visitor, failed: int) -> None:
    page = words(ann.get(f"/requests/{failed}").text)
    assert "The program ended with exit code 1: cannot allocate 12.4 GiB of memory" in page
    assert "What to do: resubmit it with more memory." in page
    assert "Retry" in page


@pytest.mark.slow
def test_an_upload_that_was_given_up_is_tried_again(shared: Context, ann: Visitor) -> None:
    number = put(shared, principal(shared, "ann"), **STATES["done"])
    button = f'action="/requests/{number}/upload"'
    assert button not in ann.get(f"/requests/{number}").text
    assert ann.post(f"/requests/{number}/upload").status_code == 409
    not_uploaded(shared, number, "failed", "cloud.example.org does not let us in: <b>401</b>")
    page = ann.get(f"/requests/{number}").text
    assert button in page
    assert "The upload to your folder was given up" in words(page)
    assert escape("Cloud.example.org does not let us in: <b>401</b>.") in page
    assert ann.post(f"/requests/{number}/upload", csrf="").status_code == 403
    answer = ann.post(f"/requests/{number}/upload")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/requests/{number}")
    page = ann.get(f"/requests/{number}").text
    assert "The upload is tried again within moments." in words(page)
    assert "Not all is in your folder yet" in words(page)


@pytest.mark.slow
def test_markup_in_words_of_users_stays_words(shared: Context, ann: Visitor) -> None:
    who = principal(shared, "ann")
    number = put(shared, who, name=EVIL, state="failed", problem=EVIL, hint=EVIL)
    evil = GREET.replace("title: Greeting", f"title: '{EVIL}'").replace("greet\n", "evil\n")
    shared.applications.register(who, evil)
    paths = (
        "/requests",
        f"/requests/{number}",
        "/applications",
        "/applications/evil",
        "/requests/new?application=evil",
    )
    pages = [ann.get(path).text for path in (*paths, f"/requests?text={EVIL}", f"/requests/new?again={number}")]
    pages.append(ann.post("/applications/new", {"text": EVIL}).text)
    pages.append(ann.post("/requests/new/document", {"document": EVIL}).text)
    assert [page.count(EVIL) for page in pages] == [0] * len(pages)
    assert all(escape("<script>") in page for page in pages)


@pytest.mark.slow
def test_what_just_happened_is_said_once(shared: Context, ann: Visitor) -> None:
    number = put(shared, principal(shared, "ann"), name="to go", state="done")
    answer = ann.post(f"/requests/{number}/delete")
    assert (answer.status_code, answer.headers["location"]) == (303, "/requests")
    assert f"Request {number} is deleted." in words(ann.get("/requests").text)
    assert f"Request {number} is deleted." not in words(ann.get("/requests").text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cookie",
    ["nonsense", "%5B1%5D", "%5B%22good%22%2C%20%22%3Cb%3E%22%5D", "%22x%22", "5", "null", "%7B%7D", "%5B" * 5_000],
)
def test_a_forged_word_breaks_no_page(shared: Context, cookie: str) -> None:
    visitor = Visitor(shared, "bob")
    visitor.client.cookies.set("tradewind_flash", cookie)
    page = visitor.get("/requests")
    assert page.status_code == 200
    assert "<b>" not in page.text


@pytest.mark.slow
def test_pages_of_the_list(shared: Context) -> None:
    who = principal(shared, "eve")
    numbers = [put(shared, who, name=f"many {index}", state="done") for index in range(30)]
    eve = Visitor(shared, "ann")  # of the same tenant
    first = eve.get("/requests?text=many").text
    assert [first.count(f'id="row-{number}"') for number in numbers] == [0] * 5 + [1] * 25
    second = eve.get(f"/requests?text=many&before={numbers[5]}").text
    assert [second.count(f'id="row-{number}"') for number in numbers] == [1] * 5 + [0] * 25
    assert f"before={numbers[5]}" in first
    rows = eve.get("/requests?text=many&part=1").text
    assert "<html" not in rows
    assert rows.count('id="row-') == 25


@pytest.mark.slow
def test_the_list_is_searched_by_parameters(shared: Context) -> None:
    who = principal(shared, "eve")
    small, *large = [put(shared, who, name=f"sized {size}", state="done", size=size) for size in (10, *[3000] * 26)]
    eve = Visitor(shared, "eve")
    page = eve.get("/requests?text=sized&application=plate&parameter=size%3E%3D3,000").text
    assert page.count('id="row-') == 25
    assert f'id="row-{small}"' not in page
    assert "parameter=size%3E%3D3%2C000" in page, "the next page and the tabs have it, too"
    assert "Heat in a plate · <bdi>Points across: 3,000 points</bdi>" in page
    assert f'id="row-{large[0]}"' in eve.get(f"/requests?parameter=size%3D3000&before={large[1]}").text
    wrong = eve.get("/requests?parameter=size")
    assert (wrong.status_code, wrong.text.count('id="row-')) == (422, 0)
    assert "is no condition on a parameter" in wrong.text
    assert 'name="parameter" value="size"' in wrong.text, "what was typed is not lost"


@pytest.mark.slow
def test_the_list_says_why_a_request_failed(shared: Context) -> None:
    put(shared, principal(shared, "eve"), name="broken", state="failed", problem="no such mesh\nTraceback: ...")
    page = Visitor(shared, "eve").get("/requests?text=broken").text
    assert "No such mesh" in page
    assert "Traceback" not in page


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/requests/999999/files.zip", 404, "There is no such request"),
        ("/requests/999999/shown/outputs/x.png", 404, "There is no such request"),
        ("/nothing", 404, "This address leads nowhere"),
        ("/requests/999999", 404, "There is no such request"),
        ("/requests/99999999999999999999999", 404, "This address leads nowhere"),
        ("/requests/99999999999999999999999/workflow", 404, "This address leads nowhere"),
        ("/requests/99999999999999999999999/workflow/chart", 404, "This address leads nowhere"),
        ("/studies/99999999999999999999", 404, "This address leads nowhere"),
        ("/studies/99999999999999999999/trials.csv", 404, "This address leads nowhere"),
        ("/requests?text=%00", 422, "A text has the character U+0000"),
        ("/applications/none", 404, "There is no application 'none'"),
        ("/requests/new?application=none", 404, "There is no application 'none'"),
        ("/requests?before=x", 422, "Something is wrong"),
        ("/sign-out", 405, "Method Not Allowed"),
    ],
)
def test_errors_are_pages(ann: Visitor, path: str, status: int, said: str) -> None:
    answer = ann.get(path)
    assert (answer.status_code, said in words(answer.text)) == (status, True)
    assert "Sign out" in answer.text  # in the frame of the others


def test_an_unknown_address_tells_a_stranger_no_more(shared: Context) -> None:
    answer = Visitor(shared).get("/nothing")
    assert answer.status_code == 404
    assert "Sign in" in answer.text


def test_answers_are_kept_by_no_cache_and_run_nothing_of_others(ann: Visitor) -> None:
    headers = ann.get("/requests").headers
    assert headers["cache-control"] == "no-store"
    policy = headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_an_application_with_an_error_is_shown_with_its_line(ann: Visitor, tmp_path: Path) -> None:
    text = GREET.replace("type: text", "type: txt").replace("name: greet", "name: other")
    answer = ann.post("/applications/new", {"text": text.replace("\n", "\r\n")})
    assert answer.status_code == 422
    assert "application.yaml:9" in words(answer.text)
    assert 'class="wrong"' in answer.text
    assert escape("greeting: {type: txt") in answer.text
    files = {"file": ("mine.yaml", text.encode(), "text/yaml")}
    assert "mine.yaml:9" in words(ann.post("/applications/new", {}, files=files).text)
    files = {"file": ("mine.yaml", GREET.replace("name: greet", "name: other").encode(), "text/yaml")}
    assert ann.post("/applications/new", {}, files=files).headers["location"] == "/applications/other"


@pytest.mark.slow
def test_a_password_is_changed(shared: Context) -> None:
    bob = Visitor(shared, "bob")
    other = Visitor(shared, "bob")
    fields = {"old": "correct horse battery", "new": "quite another one", "again": "quite another one"}
    assert "are not the same" in words(bob.post("/account/password", {**fields, "again": "x"}).text)
    assert bob.post("/account/password", {**fields, "old": "wrong"}).status_code == 422
    assert bob.post("/account/password", fields).status_code == 303
    assert bob.get("/account").status_code == 200
    assert other.get("/account").status_code == 303  # its session is over
    back = {"old": "quite another one", "new": "correct horse battery", "again": "correct horse battery"}
    assert bob.post("/account/password", back).status_code == 303


def test_notices_and_folders_of_results(shared: Context) -> None:
    eve = Visitor(shared, "ann")
    fields = {"address": "ann@example.com", "email": ["failed"], "webhook": "", "calls": []}
    assert eve.post("/account/notices", fields).status_code == 303
    ways = shared.notices.ways(principal(shared, "ann"))
    assert (ways.address, ways.preferences.email) == ("ann@example.com", ("failed",))
    wrong = eve.post("/account/notices", {**fields, "webhook": "ftp://x"})
    assert wrong.status_code == 422
    key = eve.post("/account/notices/key").text
    assert "twh_" in key
    assert eve.post("/account/results", {"address": "nowhere"}).status_code == 422
    assert eve.post("/account/results/remove", {"address": "s3://none/x"}).status_code == 404


def test_of_many_events_the_last_ones_are_shown(shared: Context, ann: Visitor) -> None:
    number = put(shared, principal(shared, "ann"), **STATES["search"])
    began = shared.requests.events(principal(shared, "ann"), number)[0].at
    rows = [
        {
            "request_id": number,
            "at": began + 3 + turn,
            "stage": "executing",
            "text": f"trial {turn} ended",
            "details": "{}",
        }
        for turn in range(300)
    ]
    with shared.database.write() as connection:
        connection.execute(sa.insert(request_events), rows)
    page = words(ann.get(f"/requests/{number}").text)
    assert "Everything that happened (302)" in page
    assert "Trial 299 ended" in page
    assert "Trial 99 ended" not in page
    assert "and 102 before" in page
    turns = shared.requests.store.turns(number)
    assert [event.stage for event in turns] == ["pending", "executing"]
