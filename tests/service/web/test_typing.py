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


def test_a_file_arrives_although_one_types_while_it_is_sent(open_page: Opener, tmp_path: Path) -> None:
    file = tmp_path / "start.csv"
    file.write_text("1,2\n")
    page = open_page()
    page.goto("/requests/new?application=plate")
    expect(page.get_by_role("radio", name=re.compile("local")).first).to_be_checked()
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/requests/new/proposal", hold_first)
    with page.expect_request("**/requests/new/proposal"):
        page.get_by_label("Temperatures to start from").set_input_files(file)
    with page.expect_response("**/requests/new/proposal"):
        page.get_by_label("Points across").fill("300")
    assert len(held) == 1, "the file was on its way when the next proposal was asked for"
    expect(page.locator("[name='k.start']")).to_have_value(re.compile("start.csv"))


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
    expect(page.locator("#proposal")).to_contain_text("You are signed out. Sign in in another tab, then go on here")
    expect(page.get_by_label("Points across")).to_have_value("301")
    session = scene.context.accounts.sign_in("ann", PASSWORD, "127.0.0.1", "test")
    page.context.add_cookies([{"name": "tradewind_session", "value": session.secret, "url": scene.url}])
    page.evaluate("dispatchEvent(new Event('focus'))")
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
