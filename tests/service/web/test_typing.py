"""The form of a new request while one types, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.service.live_server import principal
from tests.service.web.conftest import Opener
from tests.service.web.pages.test_new_request import CHOICES
from tests.service.web.sample_server import PASSWORD, Stage
from tests.service.web.test_journeys import badge, expect

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = pytest.mark.xdist_group("browser")


def test_files_come_in_pieces_and_what_is_typed_is_never_lost(
    open_page: Opener, scene: Stage, tmp_path: Path, shots: Path | None
) -> None:
    page = open_page(expected="Failed to load resource")
    page.goto("/requests/new?application=plate")
    page.get_by_label("Points across").fill("302")
    field, line = page.get_by_label("Temperatures to start from"), page.locator(".upload")
    expect(page.get_by_text("At most 1 MiB.")).to_be_visible()

    # Too large: nothing is sent, and nothing is lost.
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url.partition("/uploads/")[2]) if "/uploads/" in one.url else None)
    file = tmp_path / "large.csv"
    file.write_bytes(bytes(2**20 + 1))
    field.set_input_files(file)
    expect(line).to_contain_text("large.csv has 1.0 MiB, and this field takes at most 1.0 MiB: choose another file.")
    with page.expect_response("**/requests/new/proposal**"):
        page.get_by_label("Points across").fill("301")
    page.get_by_label("Points across").fill("302")
    expect(line).to_contain_text("large.csv has")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_timeout(200)
    assert (sent, page.url.rpartition("/")[2]) == ([], "new?application=plate")

    # In pieces; in the middle of it the session ends, and another server of the same name is away for a moment.
    page.locator("form[data-new]").evaluate("(form) => { form.dataset.piece = 400000; }")
    file = tmp_path / "start.csv"
    file.write_bytes(b"1,2,3\n" * 150_000)
    held: list[Route] = []

    def disturb(route: Route) -> None:
        held.append(route)
        if len(held) == 1:
            route.abort()
        elif len(held) == 3:
            page.context.clear_cookies()
            route.continue_(headers={name: text for name, text in route.request.headers.items() if name != "cookie"})
        else:
            route.continue_()

    page.route("**/uploads/pieces", disturb)
    field.set_input_files(file)
    expect(line).to_contain_text("This file waits until you are signed in again.")
    if shots is not None:
        page.screenshot(path=shots / "upload-signed-out.png", full_page=True)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(line).to_contain_text("Handed in: start.csv (878.9 KiB).")
    expect(page.get_by_label("Points across")).to_have_value("302")

    # And it ends once more before the form is sent: its form has the proof of an older session, too.
    page.context.clear_cookies()
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(r"/requests/\d+$"))
    document = scene.context.requests.get(scene.ann, int(page.url.rpartition("/")[2])).document
    parameters = document["parameters"]
    assert (parameters["size"], parameters["start"]["size"]) == (302, 900_000)


def test_a_refusal_of_the_server_keeps_the_form(open_page: Opener, scene: Stage) -> None:
    page = open_page(expected="Failed to load resource")
    page.goto("/requests/new?application=plate")
    page.get_by_label("Points across").fill("303")
    page.get_by_label("Label").fill("mine")
    page.get_by_label("Tell a program").fill("http://127.0.0.1/x")
    page.route("**/account", lambda route: route.abort())
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer. What is typed in stays")
    page.unroute("**/account")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("alert").first).to_be_visible()
    expect(page.get_by_label("Points across")).to_have_value("303")
    expect(page.get_by_label("Label")).to_have_value("mine")


def test_a_budget_is_shown_in_the_unit_that_it_was_typed_in(open_page: Opener) -> None:
    page = open_page()
    page.goto("/requests/new?application=plate")
    page.get_by_text("A search", exact=True).click()
    for typed, shown in (("50c", "50c"), ("2.50", "$2.50"), ("1_000", "$1_000"), ("$2", "$2"), ("3 USD", "3 USD")):
        page.locator("[name='budget']").fill(typed)
        expect(page.locator("#sum-cost")).to_have_text(f"at most {shown} total")


def test_a_field_appears_where_a_choice_of_truth_or_of_a_whole_float_says_so(open_page: Opener, scene: Stage) -> None:
    scene.context.applications.register(principal(scene.context, "root"), CHOICES, shared=True)
    page = open_page()
    page.goto("/requests/new?application=choices")
    more = page.get_by_label("More")
    expect(more).to_be_visible()
    page.get_by_label("Exact").select_option(label="no")
    expect(more).to_be_hidden()
    page.get_by_label("Exact").select_option(label="yes")
    expect(more).to_be_visible()
    page.get_by_label("Order").select_option(label="1")
    expect(more).to_be_hidden()


def test_what_is_typed_outlives_the_session(open_page: Opener, scene: Stage) -> None:
    page = open_page(expected="Failed to load resource")
    page.goto("/requests/new?application=plate")
    expect(page.get_by_role("radio", name=re.compile("local")).first).to_be_checked()
    page.context.clear_cookies()
    page.get_by_label("Points across").fill("301")
    expect(page.locator(".again")).to_contain_text(
        "You are signed out. Sign in again, and go on: what is typed in stays"
    )
    expect(page.get_by_label("Points across")).to_have_value("301")
    page.get_by_label("Password").fill("not this one")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".again [role=alert]")).to_contain_text("wrong")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".again")).to_have_count(0)
    expect(page.get_by_role("radio", name=re.compile("local")).first).to_be_checked()
    expect(page.get_by_label("Points across")).to_have_value("301")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page).to_have_url(re.compile(r"/requests/\d+$"))


def test_the_page_of_a_request_that_has_ended_asks_no_more(open_page: Opener, scene: Stage) -> None:
    row = scene.wait(scene.submit(parameters={"seconds": 30}).id, "executing")
    page = open_page()
    page.goto(f"/requests/{row.id}")
    expect(page.locator("h1 .badge")).to_have_text("running")
    scene.context.requests.cancel(scene.ann, row.id)
    expect(page.locator("h1 .badge")).to_have_text("cancelled")
    page.wait_for_timeout(1_000)
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url))
    page.wait_for_timeout(5_000)
    assert asked == [], "nothing happens any more"


def test_a_dialog_stays_open_while_what_is_beside_it_goes(open_page: Opener, scene: Stage) -> None:
    """It was moved to its place, and what is moved closes."""
    row = scene.wait(scene.submit(parameters={"seconds": 60}).id, "executing")
    page = open_page()
    passing = '<p id="passing">for a moment</p> <p id="too">too</p> '

    def with_more(route: Route) -> None:
        more = passing * shown + r"\g<0>"
        text, dialogs = re.subn(r'<div id="[^"]+" class="sheet" popover', more, route.fetch().text(), count=1)
        assert dialogs, "the page has changed: where is its dialog?"
        route.fulfill(body=text, content_type="text/html")

    shown = True
    page.clock.install()
    page.goto(f"/requests/{row.id}")
    live = page.locator("[data-live]").first.get_attribute("data-live")
    assert live is not None
    page.route(f"**{live}*", with_more)
    page.clock.run_for(16_000)
    expect(page.locator("#passing")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    shown = False
    page.clock.run_for(16_000)
    expect(page.locator("#passing")).to_have_count(0)
    expect(dialog).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    badge(page, "cancelled")


def test_a_list_goes_on_under_the_focus_and_the_focus_stays(open_page: Opener, scene: Stage) -> None:
    page = open_page()
    page.goto("/requests")
    link = page.locator(f"#row-{scene.numbers['search']} a")
    link.focus()
    row = scene.submit(parameters={"seconds": 30}, name="seen by keyboard")
    expect(page.locator(f"#row-{row.id} .badge")).to_have_text("running")
    expect(link).to_be_focused()
    page.locator(f"#row-{row.id} a").focus()
    scene.context.requests.cancel(scene.ann, row.id)
    expect(page.locator(f"#row-{row.id} .badge")).to_have_text("cancelled")
    expect(page.locator(f"#row-{row.id} a")).to_be_focused()
    scene.context.requests.delete(scene.ann, row.id)
    expect(page.locator(f"#row-{row.id}")).to_have_count(0)
    expect(page.locator("#rows tbody")).to_be_focused()


def test_a_button_that_goes_away_under_the_focus_becomes_no_other_one(open_page: Opener, scene: Stage) -> None:
    row = scene.wait(scene.submit(parameters={"seconds": 30}).id, "executing")
    page = open_page()
    page.goto(f"/requests/{row.id}")
    page.get_by_role("button", name="Cancel").focus()
    scene.context.requests.cancel(scene.ann, row.id)
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator(".actions").first).to_be_focused()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("h1 .badge")).to_have_text("cancelled")
