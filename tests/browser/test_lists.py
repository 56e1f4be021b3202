"""Lists of topics and of messages, in a real browser."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from dueq import Client
from tests.browser.made_up import (
    A_DAY_GOES_BY,
    A_HUNDRED_AND_TWENTY_TOPICS,
    FIRST_COUNT_IS_LATE,
    FIRST_LIST_FAILS,
    FIRST_LIST_IS_LATE,
    NO_STREAM,
    WORK_TAKES_LONG,
)
from tests.browser.tab import Tab

pytestmark = pytest.mark.integration

HOUR_MS = 3_600_000


def test_messages_of_a_topic_with_ranks_show_and_change_them_however_they_are_opened(
    tab: Tab, client: Client
) -> None:
    client.create_topic("crew", kind="priority", replicas=3, keys="unique")
    client.producer("crew").schedule(b"x", int(time.time() * 1000) + HOUR_MS, key="pilot", rank=7)
    with tab.running(NO_STREAM):
        tab.go("/messages?topic=crew&find=pilot")
        tab.says("Rank", "thead th")
        tab.press("Rank…")
        tab.write("Rank", "3")
        tab.press("Change")
        tab.says("1 message ranked.")
        tab.until(lambda: tab.texts("td[data-title=Rank]") == ["3"])
    (message,) = client.browse("crew")
    assert message.rank == 3


def test_topics_are_leafed_through_and_back_when_there_are_fewer(tab: Tab) -> None:
    with tab.running(A_HUNDRED_AND_TWENTY_TOPICS):
        tab.go("/")
        tab.says("1 to 50 of 120")
        tab.says("1 broker serves 117 partitions", ".lead")
        tab.says("What 3 partitions without leader hold is not counted.", ".lead")
        assert "Previous" not in tab.texts("main button")
        tab.driver.execute_script(
            "const next = [...document.querySelectorAll('button')].find((each) => each.textContent === 'Next');"
            "next.click(); next.click();"
        )
        tab.says("101 to 120 of 120")
        assert "Next" not in tab.texts("main button")
        tab.driver.execute_script("gone = 60")
        tab.write("Find a topic", "topic")
        tab.says("1 to 50 of 60")
        tab.driver.execute_script("gone = 0")
        tab.press("Next")
        tab.says("51 to 100 of 120")
        tab.driver.execute_script("gone = 90")
        tab.press("Next")
        tab.says("30 topics")


def test_the_focus_stays_where_it_is_while_rows_change_under_it(tab: Tab, client: Client) -> None:
    at_ms = int(time.time() * 1000) + HOUR_MS
    for name, count in (("shelf-a", 2), ("shelf-b", 1)):
        client.create_topic(name, replicas=3)
        client.producer(name).schedule_many([b"x"] * count, [at_ms] * count)
    tab.go("/?search=shelf&sort=scheduled")
    tab.until(lambda: tab.texts("tbody th a") == ["shelf-a", "shelf-b"])
    tab.tab_to("shelf-b")
    client.producer("shelf-b").schedule_many([b"x"] * 4, [at_ms] * 4)
    tab.until(lambda: "5" in tab.texts("td[data-title=Scheduled]"))
    assert tab.focused() == "shelf-b"
    tab.driver.execute_script("document.activeElement.blur()")
    tab.until(lambda: tab.texts("tbody th a") == ["shelf-b", "shelf-a"])


def test_a_search_goes_on_by_itself_until_it_finds_something(tab: Tab, client: Client) -> None:
    client.create_topic("haystack", replicas=3)
    now_ms = int(time.time() * 1000)
    keys = [f"hay-{number}" for number in range(600)] + ["needle"]
    client.producer("haystack").schedule_many(
        [b"x"] * 601, [now_ms + HOUR_MS + i for i in range(601)], keys=keys
    )
    tab.go("/messages?topic=haystack&key_prefix=needle")
    tab.press("needle")
    tab.says("waiting", "dialog dd")
    tab.go("/messages?topic=haystack&key_prefix=nobody")
    tab.says("None matches.")
    client.delete_topic("haystack")


def test_an_answer_that_comes_late_is_not_shown_in_place_of_a_later_one(tab: Tab, client: Client) -> None:
    client.create_topic("slow", partitions=1, replicas=1)
    client.producer("slow").schedule(b"x", int(time.time() * 1000) + HOUR_MS, key="tortoise")
    with tab.running(FIRST_LIST_IS_LATE):
        tab.go("/messages?topic=slow")
    tab.until(lambda: tab.driver.execute_script("return Boolean(window.release)"))
    Select(tab.field("State")).select_by_visible_text("dead")
    tab.says("No message is dead.")
    tab.driver.execute_async_script("release(); setTimeout(arguments[0], 100)")
    assert tab.texts("tbody tr") == []
    tab.says("No message is dead.")
    client.delete_topic("slow")


def test_work_on_many_shows_how_far_it_is_and_is_stopped(tab: Tab, client: Client) -> None:
    client.create_topic("papers", replicas=3)
    at_ms = int(time.time() * 1000) + HOUR_MS
    client.producer("papers").schedule_many([b"x"] * 5, [at_ms] * 5)
    with tab.running(WORK_TAKES_LONG):
        tab.go("/messages?topic=papers")
        tab.press("Change all that match…")
        tab.press("Shift…")
        tab.write("By", "1h")
        tab.press("Shift")
        tab.says("2 messages shifted.", "dialog")
        tab.says("At work", "dialog h2")
        tab.until(lambda: tab.driver.execute_script("return window.looked > 1"))
        tab.press("Stop")
        tab.says("Done", "dialog h2")
        tab.until(lambda: tab.driver.execute_script("return window.saidLate"))
        assert tab.texts("dialog h2") == ["Done"]
        assert "Stop" not in tab.texts("dialog button")
        tab.press("Close")
    tab.until(lambda: not tab.all("dialog"))


def test_a_period_is_shown_exactly(tab: Tab, client: Client) -> None:
    """One of 100 s was said to be of 2 min."""
    client.create_topic("clockwork", replicas=3)
    client.create_recurrence("clockwork", "tick", every=100.0, payload=b"x")
    tab.go("/topic?topic=clockwork")
    tab.until(lambda: tab.texts("td[data-title=When]") == ["every 1m40s"])
    client.delete_topic("clockwork")


def test_the_end_of_a_pause_has_its_day(tab: Tab, client: Client) -> None:
    """A pause until a time of day looked as if it ended today."""
    client.create_topic("closed", replicas=3)
    until = datetime.now(ZoneInfo("America/New_York")).replace(microsecond=0) + timedelta(days=3)
    client.pause("closed", until)
    tab.go("/topic?topic=closed")
    tab.says(f"It ends by itself at {until:%Y-%m-%d %H:%M:%S}.000", ".alarm")
    client.delete_topic("closed")


def test_a_page_that_is_left_open_says_of_which_day_its_times_are(tab: Tab, client: Client) -> None:
    """What was today's when it was read looked like today's on the next day, too."""
    client.create_topic("overnight", replicas=3)
    due_ms = int(time.time() * 1000) + 300_000
    client.producer("overnight").schedule(b"x", due_ms)
    with tab.running(A_DAY_GOES_BY):
        tab.go("/messages?topic=overnight")
        tab.until(lambda: len(tab.texts("td[data-title=Due]")) == 1)
        tab.driver.execute_script("slept = 86_400_000")
        at = datetime.fromtimestamp(due_ms // 1000, ZoneInfo("America/New_York"))
        wanted = f"{at:%Y-%m-%d %H:%M:%S}.{due_ms % 1000:03d}"
        tab.until(lambda: tab.texts("td[data-title=Due]") == [wanted])
    client.delete_topic("overnight")


def test_whoever_changes_many_hears_that_the_list_may_lack_some_of_them(tab: Tab, client: Client) -> None:
    """What waits for another attempt is listed by the instant of that, and cancelled by when it was due."""
    client.create_topic("again", replicas=3)
    client.producer("again").schedule(b"x", 0, key="failed")
    with client.consumer("again") as consumer:
        (message,) = consumer.receive(1)
        message.nack(delay=HOUR_MS / 1000, wait=True)
    told = "Those that wait for another attempt count by when they were due"
    tab.go(f"/messages?topic=again&until={datetime.now(UTC) + timedelta(minutes=9):%Y-%m-%dT%H:%M:%SZ}")
    tab.says("None matches.")
    tab.press("Change all that match…")
    tab.says("1 message", "dialog")
    tab.says(told, "dialog")
    tab.go("/messages?topic=again")
    tab.says("failed", "tbody")
    tab.press("Change all that match…")
    tab.says("1 message", "dialog")
    assert not any(told in each for each in tab.texts("dialog"))
    client.delete_topic("again")


def test_how_far_copies_lag_is_shown(tab: Tab, client: Client) -> None:
    client.create_topic("copies", replicas=3)
    tab.go("/topic?topic=copies")
    tab.until(lambda: tab.texts("td[data-title=Lag]") == ["0"])


def test_a_list_that_could_not_be_read_is_read_again_by_itself(tab: Tab, client: Client) -> None:
    client.create_topic("again", replicas=3)
    client.producer("again").schedule(b"x", int(time.time() * 1000) + HOUR_MS, key="back")
    with tab.running(FIRST_LIST_FAILS):
        tab.go("/messages?topic=again")
        tab.says("back", "tbody")
    assert tab.texts(".refused") == []


def test_a_count_that_comes_late_is_not_shown_in_place_of_a_later_one(tab: Tab, client: Client) -> None:
    client.create_topic("seconds", replicas=3)
    at_ms = (int(time.time() * 1000) // HOUR_MS + 30) * HOUR_MS
    client.producer("seconds").schedule_many([b"x"] * 7, [at_ms] * 7)
    with tab.running(FIRST_COUNT_IS_LATE):
        tab.go("/topic?topic=seconds&ahead=604800")
        tab.until(lambda: tab.all("svg.picks .column"))
        tab.press("Count")
        tab.until(lambda: tab.driver.execute_script("return Boolean(window.release)"))
        tab.find("svg.picks").send_keys(Keys.ARROW_RIGHT, Keys.ENTER)
        tab.says("7 messages wait until a second")
        tab.driver.execute_async_script("window.release(); setTimeout(arguments[0], 0);")
        tab.says("7 messages wait until a second")
        assert not [each for each in tab.texts("p") if "0 messages wait" in each]


def test_what_hides_in_a_name_is_seen_and_need_not_be_typed(tab: Tab, client: Client) -> None:
    client.create_topic("names", kind="fair", replicas=3, labels={"of\u202e": "sales\n"})
    client.create_recurrence("names", " nightly ", cron="0 3 * * *", payload=b"x")
    client.producer("names").schedule(b"x", 0, group="g\u202e\U000e0041pt")
    tab.go("/topic?topic=names")
    tab.says("g\\u{202e}\\u{e0041}pt", "th")
    tab.says("Label of\\u{202e}", "dt")
    tab.says("sales\\u{a}", "dd")
    tab.press("Delete…")
    tab.write("This cannot be undone", "nightly")
    tab.press("Delete")
    tab.until(lambda: not list(client.recurrences("names")))


def test_a_topic_that_was_made_again_is_shown_as_it_is_now(tab: Tab, client: Client) -> None:
    client.create_topic("anew", replicas=3)
    tab.go("/topic?topic=anew")
    tab.says("timeline", "dd")
    client.delete_topic("anew")
    client.create_topic("anew", kind="priority", replicas=3)
    tab.says("priority", "dd")
    # The page may have asked between the two, and a browser's console tells of each 404.
    assert [text for text in tab.complaints() if "404" not in text] == []


def test_a_message_that_is_due_after_the_year_9999_is_said_to_be_scheduled(tab: Tab, client: Client) -> None:
    client.create_topic("late", replicas=3)
    tab.go("/create?topic=late")
    tab.write("Or after", "3000000d")
    tab.press("Schedule")
    tab.says("Scheduled for")


def test_dead_messages_that_are_not_in_the_list_are_not_changed_with_it(tab: Tab, client: Client) -> None:
    """The list is of those that died in a time; those that were due in it are others."""
    client.create_topic("lost", replicas=3)
    client.producer("lost").schedule(b"x", 0, key="old")
    with client.consumer("lost") as consumer:
        (message,) = consumer.receive(1)
        message.nack(dead=True, wait=True)
    tab.go("/messages?topic=lost&state=dead&until=2020-01-01T00:00:00Z")
    tab.says("None matches.")
    tab.press("Change all that match…")
    tab.says("Leave out From and Until", ".toast")
    assert tab.all("dialog") == []
