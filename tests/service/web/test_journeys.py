"""What people come for, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.service.web.sample_server import PASSWORD, Stage

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.xdist_group("browser")

Opener = Callable[..., "Page"]


def expect(thing: Any) -> Any:
    """What must come to be so; playwright is imported late."""
    from playwright.sync_api import expect

    expect.set_options(timeout=20_000)
    return expect(thing)


def see(page: Page, words: str) -> None:
    """Words must come to be seen."""
    expect(page.get_by_text(words).first).to_be_visible()


def badge(page: Page, word: str) -> None:
    """The state beside the heading must come to be this."""
    expect(page.locator("h1 .badge")).to_have_text(word)


@pytest.mark.slow
def test_a_proposal_that_comes_while_one_types_keeps_what_is_selected(open_page: Opener) -> None:
    """The field was made anew, with nothing selected: a 3 over the 1 became 31."""
    page = open_page()
    page.goto("/requests/new?application=plate")
    page.get_by_text("Another configuration").click()
    threads = page.locator("[name='c.threads']")
    expect(threads).to_have_value("1")
    expect(page.locator("[aria-busy='true']")).to_have_count(0)
    threads.evaluate("e => { e.focus(); e.select(); window.answer = document.querySelector('[data-answer]') }")
    change = "e => { e.value = '300'; e.dispatchEvent(new Event('input', {bubbles: true})) }"
    page.get_by_label("Points across").evaluate(change)
    page.wait_for_function("() => document.querySelector('[data-answer]') !== window.answer")
    page.keyboard.insert_text("3")
    expect(threads).to_have_value("3")


def test_from_the_door_to_the_result(open_page: Opener, scene: Stage, tmp_path: Path) -> None:
    page = open_page("", expected="401")
    page.goto("/requests/new?application=plate")
    assert page.url.endswith("/sign-in?next=/requests/new%3Fapplication%3Dplate")
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("The name or the password is wrong")
    assert page.get_by_label("Name").input_value() == "ann"
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Heat in a plate")
    expect(page.get_by_role("radio", name=re.compile("local")).first).to_be_checked()
    page.get_by_label("Points across").fill("5")
    see(page, "5 is below 10 points")
    assert page.get_by_label("Points across").get_attribute("aria-invalid") == "true"
    page.get_by_label("Points across").fill("400")
    expect(page.get_by_text("5 is below 10 points")).to_have_count(0)
    expect(page.get_by_label("Tolerance")).to_be_hidden()
    page.get_by_label("Solver").select_option("implicit")
    expect(page.get_by_label("Tolerance")).to_be_visible()
    file = tmp_path / "start.csv"
    file.write_text("1,2\n")
    page.get_by_label("Temperatures to start from").set_input_files(file)
    page.get_by_text("Another configuration").click()
    page.locator("[name='c.threads']").fill("3")
    page.get_by_label("Name").fill("from the browser")
    page.get_by_role("button", name="Start", exact=True).click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("from the browser")
    badge(page, "done")  # the page brings it by itself
    expect(page.locator(".log").first).to_contain_text("plate 400 step 3")
    expect(page.locator("#live-facts")).to_contain_text("outputs/heat.csv")
    expect(page.locator("[aria-labelledby=configuration-title] .facts")).to_contain_text("threads3")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download outputs/heat.csv").click()
    assert download.value.suggested_filename == "heat.csv"
    page.get_by_role("button", name="Make a link to share").click()
    link = page.locator("#secret").inner_text()
    stranger = open_page("")
    stranger.goto(link)
    see(stranger, "heat.csv")


def test_why_a_request_failed_is_said_with_what_to_do(open_page: Opener, scene: Stage) -> None:
    row = scene.submit(parameters={"code": 3}, name="too large")
    page = open_page()
    page.goto(f"/requests/{row.id}")
    badge(page, "failed")
    note = page.locator("#live-note")
    expect(note).to_contain_text("3")
    expect(note).to_contain_text("What to do: its log, stderr above all, shows why")
    expect(note).to_contain_text("the grid does not fit into memory")
    page.reload()
    expect(page.locator("[data-stream]").first).to_contain_text("the grid does not fit into memory")
    page.get_by_role("link", name="Change and resubmit").click()
    expect(page.get_by_label("Exit code")).to_have_value("3")
    page.get_by_label("Exit code").fill("0")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page).to_have_url(re.compile(rf"/requests/(?!{row.id}$)\d+$"))
    badge(page, "done")


def test_cancel_asks_first_and_shows_the_end(open_page: Opener, scene: Stage) -> None:
    row = scene.submit(parameters={"seconds": 50}, name="too long")
    page = open_page()
    page.goto(f"/requests/{row.id}")
    badge(page, "running")
    expect(page.locator(".log").first).to_contain_text("step 3")  # while it runs
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("its machines are given back")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    badge(page, "cancelled")
    see(page, "Cancelled; what it had used by then is paid")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    see(page, f"Request {row.id} is deleted.")


def test_a_page_says_when_its_server_is_away_and_goes_on(open_page: Opener, scene: Stage) -> None:
    page = open_page(expected="Failed to load resource")
    page.goto("/requests")
    alert = page.locator(".notice.away")
    expect(alert).to_have_count(0)
    page.route("**/requests?part=1*", lambda route: route.abort())
    row = scene.submit(parameters={}, name="while it is away")
    expect(alert).to_contain_text("The server does not answer. What is shown is of")
    page.unroute("**/requests?part=1*")
    expect(alert).to_have_count(0)
    expect(page.locator(f"#row-{row.id} .badge")).to_have_text("done")
    page.route("**/requests?part=1*", lambda route: route.fulfill(status=502))
    scene.submit(parameters={}, name="behind a proxy")
    expect(alert).to_be_visible()


def test_the_preview_of_a_run_comes_by_itself(open_page: Opener, scene: Stage) -> None:
    row = scene.wait(scene.submit(parameters={"seconds": 2}).id, "executing")
    page = open_page()
    page.goto(f"/requests/{row.id}")
    expect(page.locator("#preview")).to_have_count(0)
    expect(page.locator("[data-stream]")).to_have_count(2)
    expect(page.locator("#preview table")).to_contain_text("1")
    expect(page.locator("h1 .badge")).to_have_text("done")


def test_the_list_is_alive_and_can_be_searched(open_page: Opener, scene: Stage) -> None:
    page = open_page()
    page.goto("/requests")
    expect(page.locator(f"#row-{scene.numbers['search']} progress").first).to_have_attribute("value", "1.31")
    row = scene.submit(parameters={}, name="while one looks")
    expect(page.locator(f"#row-{row.id} .badge")).to_have_text("done")
    page.get_by_label("Name or number").fill("finest")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    see(page, "finest grid")
    page.get_by_role("link", name="Cancelled").click()
    see(page, "No request like that")
    newcomer = open_page("bob")
    newcomer.goto("/requests")
    see(newcomer, "No results yet")
    newcomer.get_by_role("main").get_by_role("link", name="New run").click()
    see(newcomer, "Choose what to run.")


def test_an_application_is_registered_and_its_form_appears(open_page: Opener) -> None:
    page = open_page("eve", expected="422")
    page.goto("/applications/new")
    text = page.get_by_label("YAML")
    good = text.input_value().replace("name: hello", "name: from-the-page")
    text.fill(good.replace("max: 100", "max: 1"))
    see(page, "application.yaml:12")
    expect(page.locator(".excerpt .wrong")).to_contain_text("12 ▸")
    page.get_by_role("button", name="Go to line 12").click()
    assert page.evaluate("document.activeElement.id") == "f-text"
    with page.expect_navigation():  # the page before it says the same words
        page.get_by_role("button", name="Register").click()
    see(page, "application.yaml:12")
    text.fill(good)
    see(page, "This is right")
    page.get_by_role("button", name="Register").click()
    see(page, "from-the-page@1 is registered: this is its form.")
    expect(page.get_by_label("How often")).to_have_value("3")
    page.get_by_role("main").get_by_role("link", name="New request").click()
    expect(page.get_by_label("Greeting")).to_have_value("hello")
    page.goto("/applications/from-the-page")
    page.get_by_role("button", name="Retire").click()
    page.get_by_role("dialog").get_by_role("button", name="Retire", exact=True).click()
    see(page, "from-the-page is retired")


def test_a_token_is_shown_once_and_taken_away(open_page: Opener, scene: Stage) -> None:
    page = open_page("eve")
    page.goto("/account/tokens")
    page.get_by_label("Name").fill("laptop")
    page.get_by_role("button", name="Make a token").click()
    secret = page.locator("#secret").inner_text()
    assert scene.context.accounts.by_token(secret).name == "eve"
    page.goto("/account/tokens")
    expect(page.locator("#secret")).to_have_count(0)
    page.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()
    see(page, "No token yet")
    page.goto("/account")
    page.get_by_label("Dark").check()
    page.get_by_role("button", name="Use these").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_by_keyboard_alone(open_page: Opener) -> None:
    page = open_page("")
    page.goto("/sign-in?next=/requests/new?application=greet")
    expect(page.get_by_label("Name")).to_be_focused()  # by itself, though a moment later
    page.keyboard.type("ann")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Greeting")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()  # a browser goes to a part of its page a moment later, too
    page.keyboard.press("Tab")
    for _ in range(4):  # past the links of the heading
        if page.evaluate("document.activeElement.id") == "f-p-greeting":
            break
        page.keyboard.press("Tab")
    expect(page.locator("#f-p-greeting")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("by keyboard")
    expect(page.locator("#f-p-greeting")).to_have_value("by keyboard")
    expect(page.get_by_role("radio", name=re.compile("local")).first).to_be_checked()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Start":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    badge(page, "done")
    expect(page.locator(".log").first).to_contain_text("by keyboard")


def test_without_scripts(open_page: Opener) -> None:
    page = open_page(java_script_enabled=False)
    page.goto("/requests/new?application=plate")
    page.get_by_label("Points across").fill("5")
    page.get_by_role("button", name="Propose machines").click()
    see(page, "5 is below 10 points")
    page.get_by_label("Points across").fill("300")
    page.get_by_role("button", name="Propose machines").click()
    page.get_by_role("radio", name=re.compile("local")).nth(1).check()
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("plate")
    for _ in range(40):
        if page.locator("h1 .badge").inner_text() == "done":
            break
        page.wait_for_timeout(250)
        page.reload()
    expect(page.locator(".log").first).to_contain_text("plate 300 step 3")


def test_the_menu_of_a_phone(open_page: Opener) -> None:
    page = open_page("root", phone=True)
    page.goto("/requests")
    menu = page.get_by_role("navigation", name="Main")
    expect(menu).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    expect(menu).to_be_visible()
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    menu.get_by_role("link", name="Applications").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Applications")


def test_signing_out_leaves_nothing_behind(open_page: Opener) -> None:
    page = open_page("eve")
    page.goto("/applications")
    page.get_by_role("button", name="Sign out").click()
    see(page, "Sign in")
    page.go_back()
    expect(page.get_by_label("Password")).to_be_visible()
