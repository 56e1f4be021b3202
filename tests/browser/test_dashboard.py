"""The dashboard in a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys

from dueq import Client
from dueq.errors import StaleLease
from dueq.local import LocalMesh
from tests.browser.made_up import FIRST_STREAM_IS_DEAD
from tests.browser.tab import Tab
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

HOUR_MS = 3_600_000
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=alert(1)>"

_CHART_OF_DAYS = """
const [begin, done] = arguments;
import("/dashboard/files/chart.js").then(({ chart }) => {
  const made = chart("days");
  document.querySelector("main").replaceChildren(made.element);
  made.update({ at: Date.parse(begin), since: 0, delivered: [], due: [], past: 0, ahead: 45 * 86_400, step: 3600 });
  done([...made.element.querySelectorAll("text[text-anchor=middle]")].map((each) => each.textContent));
});
"""
"""The labels of an axis from an instant on."""


@pytest.fixture(scope="module")
def mail(client: Client) -> str:
    """A topic with something of everything."""
    now_ms = int(time.time() * 1000)
    client.create_topic("mail", partitions=2, replicas=3, max_attempts=1)
    producer = client.producer("mail")
    keys = [f"letter-{number}" for number in range(60)] + [HOSTILE[:200], "bill-\u202egnp.exe"]
    dues = [now_ms + 2 * HOUR_MS + 60_000 * number for number in range(62)]
    producer.schedule_many([b'{"to":"a"}'] * 60 + [HOSTILE.encode(), b"x"], dues, keys=keys)
    client.create_recurrence("mail", "nightly", cron="0 3 * * *", payload=b"x")
    return "mail"


@pytest.fixture
def dead(client: Client, mail: str) -> Iterator[str]:
    """The key of a message that is dead."""
    client.producer(mail).schedule(b"\xff\x00", 0, key="unlucky")
    with client.consumer(mail) as consumer:
        (message,) = consumer.receive(1)
        message.nack(reason=HOSTILE, wait=True)
    yield "unlucky"
    client.purge(mail, "dead")


def test_a_topic_is_created_and_a_message_scheduled_moved_and_cancelled(tab: Tab, client: Client) -> None:
    tab.go("/create")
    tab.write("Name", "parcels")
    tab.press("Create topic")
    tab.says("Topic parcels is there.")
    assert tab.button("Show it").get_attribute("href").endswith("/topic?topic=parcels")
    tab.write("Or after", "3h")
    tab.write("Key", "parcel-1")
    tab.write("Payload", "hello")
    tab.press("Schedule")
    tab.says("Scheduled for")
    (message,) = client.browse("parcels", payloads=True)
    assert (message.key, message.payload) == ("parcel-1", b"hello")
    tab.go("/messages?topic=parcels")
    tab.press("parcel-1")
    tab.says("hello", "dialog pre")
    tab.press("Move…")
    tab.write("Or after", "5h")
    tab.press("Move")
    tab.says("1 message moved.")
    assert client.get("parcels", message.id).due > message.due + HOUR_MS
    tab.press("parcel-1")
    tab.press("Cancel…")
    tab.press("Cancel it")
    tab.says("No message waits.")
    assert list(client.browse("parcels")) == []


def test_who_names_no_topic_is_asked_which_and_not_told_that_it_is_gone(tab: Tab) -> None:
    tab.go("/topic")
    tab.says("Which topic?", "h1")
    tab.go("/topic?topic=never-made")
    tab.says("There is no topic never-made.", "h1")


def test_a_name_that_no_topic_can_have_is_refused_with_what_is_possible(tab: Tab) -> None:
    """Browsers show the title of a field beside their own words."""
    tab.go("/create")
    tab.write("Name", "a b")
    name = tab.field("Name")
    assert tab.driver.execute_script("return arguments[0].validity.patternMismatch", name)
    assert name.get_attribute("title") == "Letters, digits, dot, underscore and hyphen"


def test_a_topic_is_paused_and_resumed(tab: Tab, mail: str, client: Client) -> None:
    tab.go(f"/topic?topic={mail}")
    tab.press("Pause…")
    tab.press("Pause")
    tab.says("mail is paused", ".alarm")
    assert client.describe(mail).paused
    tab.press("Resume")
    tab.says_no_more("mail is paused", ".alarm")


def test_settings_of_a_topic_are_seen_and_changed(tab: Tab, client: Client) -> None:
    client.create_topic("slips", replicas=3, keys="unique")
    tab.go("/topic?topic=slips")
    tab.press("Change settings…")
    tab.write("First back-off", "1m30s")
    tab.write("Dead ones are kept for", "3d")
    tab.write("A key stays taken for", "2h")
    tab.press("Change")
    tab.says("1m30s, each time 2 times as long, 1h at most", "dd")
    tab.says("unique, and taken for 2h after a message is finished", "dd")
    info = client.describe("slips")
    assert (info.dead_retention, info.remember) == (timedelta(days=3), timedelta(hours=2))


def test_an_endpoint_is_tested_and_its_failure_is_said(tab: Tab, client: Client) -> None:
    client.create_topic("bills", replicas=3)
    client.set_endpoint("billing", "bills", "http://127.0.0.1:9/hook")
    tab.go("/topic?topic=bills")
    tab.says("http://127.0.0.1:9/hook", "td")
    tab.press("Test")
    tab.says("billing answered nothing")
    client.delete_endpoint("billing")


def test_a_long_url_leaves_room_for_what_fails(tab: Tab, client: Client) -> None:
    client.create_topic("bills-far-away", replicas=3)
    client.set_endpoint("far-away", "bills-far-away", "http://127.0.0.1:9/" + "hook/" * 150)
    tab.go("/topic?topic=bills-far-away")
    tab.says("http://127.0.0.1:9/hook", "td")
    ends = "return arguments[0].getBoundingClientRect().right"
    assert tab.driver.execute_script(ends, tab.button("Reload")) <= 1440
    client.delete_topic("bills-far-away")


def test_a_recurrence_is_triggered(tab: Tab, mail: str, client: Client) -> None:
    tab.go(f"/topic?topic={mail}")
    tab.press("Trigger")
    tab.says("nightly has made a message.")
    with client.consumer(mail) as consumer:
        (message,) = consumer.receive(1)
        message.ack(wait=True)


def test_a_time_ahead_that_is_not_offered_is_not_shown(tab: Tab, mail: str) -> None:
    tab.go(f"/topic?topic={mail}&ahead=constructor")
    tab.says("Kind", "dt")


def test_a_dead_message_is_seen_with_its_reason_and_redriven(
    tab: Tab, mail: str, dead: str, client: Client
) -> None:
    tab.go("/")
    tab.press("Dead messages")
    tab.says(HOSTILE, "td")
    tab.press(dead)
    tab.says("ff 00", "dialog pre")
    tab.press("Redrive")
    tab.says("No message is dead.")
    with client.consumer(mail) as consumer:
        (message,) = consumer.receive(1)
        assert (message.key, message.attempt) == (dead, 1)
        message.ack(wait=True)


def test_what_matches_a_filter_is_counted_and_then_shifted(tab: Tab, mail: str, client: Client) -> None:
    before = {message.key: message.due for message in client.browse(mail)}
    tab.go(f"/messages?topic={mail}&key_prefix=letter-5")
    tab.press("Change all that match…")
    tab.says("11 messages", "dialog .great")
    tab.press("Shift…")
    tab.write("By", "2h")
    tab.press("Shift")
    tab.says("11 messages shifted", "dialog")
    tab.press("Close")
    after = {message.key: message.due for message in client.browse(mail)}
    moved = {key for key in before if after[key] != before[key]}
    assert moved == {key for key in before if key.startswith("letter-5")}
    assert {after[key] - before[key] for key in moved} == {2 * HOUR_MS}


def test_all_that_match_are_counted_and_not_only_those_of_the_page(
    tab: Tab, mail: str, client: Client
) -> None:
    total = sum(message.key.startswith("letter-") for message in client.browse(mail))
    tab.go(f"/messages?topic={mail}&key_prefix=letter-")
    assert len(tab.until(lambda: tab.all("tbody tr"))) < total
    tab.press("Change all that match…")
    tab.says(f"{total} messages", "dialog .great")


def test_what_is_gone_goes_from_an_open_page(tab: Tab, client: Client) -> None:
    client.create_topic("labelled", partitions=1, replicas=1, labels={"team": "red"})
    tab.go("/topic?topic=labelled")
    tab.says("Label team", "dt")
    client.update_topic("labelled", labels={})
    tab.says_no_more("Label team", "dt")
    client.delete_topic("labelled")


def test_what_cannot_be_undone_wants_a_word(tab: Tab, client: Client) -> None:
    client.create_topic("old", replicas=3)
    client.producer("old").schedule_many([b"x"] * 3, [int(time.time() * 1000) + HOUR_MS] * 3)
    tab.go("/messages?topic=old")
    tab.press("Change all that match…")
    tab.press("Cancel…")
    assert not tab.button("Cancel").is_enabled()
    for wrong in ("yes", "cance", "cancel all", "Cancel"):
        tab.write("This cannot be undone", wrong)
        tab.keys(Keys.ENTER)
        assert not tab.button("Cancel").is_enabled(), wrong
    tab.write("This cannot be undone", "cancel")
    tab.until(lambda: tab.button("Cancel").is_enabled())
    tab.press("Cancel")
    tab.says("3 messages cancelled", "dialog")
    tab.press("Close")
    tab.go("/topic?topic=old")
    tab.press("Delete topic…")
    tab.write("This cannot be undone", "old")
    tab.press("Delete")
    tab.until(lambda: "/topic" not in tab.driver.current_url)
    until(lambda: "old" not in {topic.name for topic in client.topics()}, "the deletion is known")


def test_some_are_chosen_and_run_now(tab: Tab, mail: str, client: Client) -> None:
    tab.go(f"/messages?topic={mail}&key_prefix=letter-1")
    boxes = tab.until(lambda: tab.all("tbody input"))
    boxes[0].click()
    boxes[1].click()
    tab.says("2 messages chosen")
    tab.press("Run now")
    tab.says("2 messages run now")
    with client.consumer(mail) as consumer:
        found = []
        while len(found) < 2:
            found += consumer.receive(2)
        assert {message.key for message in found} == {"letter-1", "letter-10"}
        for message in found:
            message.ack(wait=True)


def test_what_was_changed_since_it_was_looked_at_is_left_alone(tab: Tab, mail: str, client: Client) -> None:
    tab.go(f"/messages?topic={mail}&key_prefix=letter-4")
    tab.until(lambda: tab.all("tbody input"))[0].click()
    tab.says("1 message chosen")
    (seen,) = [message for message in client.browse(mail) if message.key == "letter-4"]
    client.producer(mail).move(seen.id, seen.due + HOUR_MS)
    tab.press("Run now")
    tab.says("0 messages run now; 1 left alone (changed meanwhile)")
    (found,) = [message for message in client.browse(mail) if message.key == "letter-4"]
    assert found.due == seen.due + HOUR_MS


def test_an_instant_in_the_address_that_is_none_is_left_out(tab: Tab, mail: str) -> None:
    tab.go(f"/messages?topic={mail}&from=tomorrow&key_prefix=letter-1")
    tab.until(lambda: tab.all("tbody tr"))
    assert "tomorrow" not in tab.driver.current_url


def test_what_messages_hold_is_only_ever_text(tab: Tab, mail: str) -> None:
    tab.go(f"/messages?topic={mail}&key_prefix=<script>")
    tab.press(HOSTILE[:200])
    tab.says(HOSTILE, "dialog pre")
    # On a busy machine there may be alarms, whose number comes first.
    assert re.fullmatch(r"(\(\d+\) )?Messages of mail · dueq", tab.driver.title)
    assert tab.all("main img, dialog img") == []
    tab.go(f"/messages?topic={mail}&key_prefix=bill-")
    tab.says("bill-\\u{202e}gnp.exe", "th")


def test_what_consumers_have_is_listed_and_one_message_found_by_its_key(tab: Tab, client: Client) -> None:
    client.create_topic("orders", replicas=3, keys="unique")
    client.producer("orders").schedule(b"held", 0, key="order-1")
    client.producer("orders").schedule(b"later", int(time.time() * 1000) + HOUR_MS, key="order-2")
    with client.consumer("orders") as consumer:
        (message,) = consumer.receive(1)
        tab.go("/messages?topic=orders&state=leased")
        tab.says(consumer.consumer_id.hex()[:12], "td")
        tab.press("order-1")
        tab.says("held", "dialog pre")
        tab.says("It can be run, moved, ranked or cancelled when it waits again", "dialog")
        tab.press("Take back…")
        tab.press("Take back")
        tab.says("1 message taken back.")
        (again,) = consumer.receive(1)
        assert (again.key, again.attempt) == ("order-1", 1)
        with pytest.raises(StaleLease):
            message.ack(wait=True)
        tab.press("Find")
        tab.press("order-1")
        tab.press("Finish…")
        tab.press("Finish it")
        tab.says("No consumer has a message.")
    tab.write("Id or key", "order-2")
    tab.press("Show")
    tab.says("later", "dialog pre")
    tab.press("Back")
    tab.write("Id or key", "order-3")
    tab.press("Show")
    tab.says("No message of orders has this id or key now.")


def test_the_seconds_of_an_hour_ahead_are_counted(tab: Tab, client: Client) -> None:
    client.create_topic("invoices", replicas=3)
    at_ms = (int(time.time() * 1000) // HOUR_MS + 30) * HOUR_MS + 754_000
    client.producer("invoices").schedule_many([b"x"] * 7, [at_ms] * 5 + [at_ms + 1000] * 2)
    tab.go("/topic?topic=invoices&ahead=604800")
    chart = tab.until(lambda: tab.all("svg.picks"))[0]
    tab.until(lambda: tab.all("svg.picks .column"))
    chart.send_keys(Keys.ARROW_RIGHT, Keys.ENTER)
    tab.says("7 messages wait until a second")
    tab.says("Busiest second: 5 at", ".readout")


def test_times_are_those_of_the_viewer_with_utc_at_hand(tab: Tab, mail: str) -> None:
    tab.go(f"/messages?topic={mail}")
    shown = tab.until(lambda: tab.all("td time"))[0]
    local, instant = shown.text, shown.get_attribute("datetime") or ""
    assert instant.endswith("Z")
    assert (shown.get_attribute("title") or "").startswith(instant)
    assert instant[11:23] not in local
    tab.find("#zone").click()
    tab.until(lambda: tab.all("td time")[0].text.endswith(instant[11:23]))
    tab.find("#zone").click()
    tab.until(lambda: tab.all("td time")[0].text == local)


def test_a_time_that_the_clocks_skip_or_repeat_is_said(tab: Tab) -> None:
    tab.go("/create")
    due = tab.field("Due")
    for text, said in (
        ("2027-03-14T02:30", "there is no 02:30 on that day. Taken as 03:30, 2027-03-14 07:30:00 UTC"),
        ("2027-11-07T01:30", "comes twice on that day. Taken as 2027-11-07 05:30:00 UTC"),
        ("2027-07-01T12:00", "2027-07-01 16:00:00 UTC."),
    ):
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'));"
        tab.driver.execute_script(script, due, text)
        tab.says(said, ".moment")


def test_the_days_of_a_chart_begin_at_midnight_though_the_clocks_change(tab: Tab) -> None:
    tab.go("/create")
    for year, month in ((2026, 10), (2027, 3)):
        labels = tab.driver.execute_async_script(_CHART_OF_DAYS, f"{year}-{month:02}-02T12:00:00Z")
        days = [datetime.strptime(f"{label} {year}", "%a %d %b %Y") for label in labels]
        assert len(days) > 5
        assert len({later - earlier for earlier, later in pairwise(days)}) == 1, labels


def test_the_keyboard_alone_suffices(tab: Tab, mail: str) -> None:
    tab.go("/")
    tab.says(mail, "tbody")
    tab.keys(Keys.TAB)
    assert tab.focused() == "Skip to the page"
    tab.keys(Keys.ENTER)
    tab.tab_to(mail)
    tab.keys(Keys.ENTER)
    tab.until(lambda: "/topic" in tab.driver.current_url)
    tab.says("Messages", "main")
    tab.tab_to("Messages")
    tab.keys(Keys.ENTER)
    tab.until(lambda: tab.all("tbody button"))
    first = tab.all("tbody button")[0].text
    tab.tab_to(first)
    tab.keys(Keys.ENTER)
    tab.until(lambda: tab.all("dialog pre"))
    tab.keys(Keys.ESCAPE)
    tab.until(lambda: not tab.all("dialog"))
    assert tab.focused() == first


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/topic?topic=mail",
        "/topic?topic=none",
        "/messages?topic=mail&state=dead",
        "/messages?topic=mail&state=leased",
        "/messages",
        "/create",
    ],
)
def test_nothing_keeps_people_from_using_a_page(tab: Tab, mail: str, dead: str, axe: str, path: str) -> None:
    tab.go(path)
    tab.until(lambda: tab.all("tbody tr, .trouble h1, form, main h1"))
    tab.driver.execute_script(axe)
    assert tab.flaws() == []
    tab.look(390, dark=True)
    assert tab.flaws(rules=("color-contrast",)) == []
    assert tab.driver.execute_script("return document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(
    ("path", "dialogs"),
    [
        (
            "/topic?topic=mail",
            [["Pause…"], ["Change settings…"], ["Cancel all that wait…"], ["Delete topic…"], ["Delete…"]],
        ),
        (
            "/messages?topic=mail",
            [["letter-9", "Move…"], ["letter-9", "Cancel…"], ["Change all that match…", "Shift…"]],
        ),
        ("/messages?topic=mail&state=dead", [["unlucky", "Discard…"]]),
    ],
)
def test_nothing_keeps_people_from_using_a_dialog(
    tab: Tab, mail: str, dead: str, axe: str, path: str, dialogs: list[list[str]]
) -> None:
    tab.go(path)
    tab.driver.execute_script(axe)
    for buttons in dialogs:
        for text in buttons:
            tab.press(text)
            tab.until(lambda: tab.driver.execute_script("return !!document.activeElement.closest('dialog')"))
            assert tab.flaws("dialog") == [], text
        while tab.all("dialog"):
            tab.keys(Keys.ESCAPE)
        assert tab.focused() == buttons[0]


def test_a_gateway_that_is_read_only_offers_no_acts(tab: Tab, mail: str, read_only: Future[str]) -> None:
    own, tab.url = tab.url, read_only.result()
    try:
        tab.go(f"/messages?topic={mail}")
        tab.until(lambda: tab.all("tbody tr"))
        assert tab.texts("main button")[:3] == ["Show", "Find", "Clear"]
        assert tab.all(".writes, tbody input") == []
        tab.go(f"/messages?topic={mail}&job={'0' * 32}")
        tab.says("0 messages match.")
        tab.driver.get("about:blank")
        assert tab.asked_elsewhere() == []
    finally:
        tab.url = own


def test_a_broker_that_dies_is_missed_and_welcomed_back_while_somebody_looks(
    tab: Tab, mail: str, mesh: LocalMesh
) -> None:
    tab.go("/")
    tab.says("3 brokers serve", ".lead")
    mesh.kill(2)
    tab.says("Broker b3 does not answer", ".alarm.bad")
    tab.says("catches up by itself", ".alarm.bad")
    assert tab.driver.title.startswith("(")
    mesh.start_broker(2)
    tab.says_no_more("Broker b3", ".alarm")
    tab.says("3 brokers serve", ".lead")


def test_a_connection_that_died_without_a_word_is_opened_again(tab: Tab, mail: str) -> None:
    with tab.running(FIRST_STREAM_IS_DEAD):
        tab.driver.get(tab.url + "/")
        tab.says("3 brokers serve", ".lead")
    assert tab.all("#lost") == []
    assert tab.driver.execute_script("return streams") == 2


def test_a_page_outlives_its_gateway(tab: Tab, mail: str, mesh: LocalMesh, axe: str) -> None:
    tab.go("/")
    tab.says("3 brokers serve", ".lead")
    assert mesh.gateway is not None
    tab.driver.execute_script(axe)
    mesh.gateway.kill()
    tab.says("This page has lost its gateway", "#lost")
    assert tab.flaws() == []
    assert mesh.gateway.start(mesh.endpoints, 60)
    tab.until(lambda: not tab.all("#lost"))
    tab.says("3 brokers serve", ".lead")
    # A connection that was refused is said in the console by the browser itself.
    assert [text for text in tab.complaints() if "ERR_" not in text] == []
