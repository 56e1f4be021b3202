"""Paths in ZooKeeper."""

from __future__ import annotations

import re

import pytest

from dueq.cluster.layout import Layout, segment, split_address


def test_an_address_without_a_root_is_below_dueq() -> None:
    assert split_address("a:1,b:2") == ("a:1,b:2", "/dueq")
    assert split_address("a:1/") == ("a:1", "/dueq")


def test_an_address_can_name_the_root() -> None:
    assert split_address("a:1,b:2/x/y") == ("a:1,b:2", "/x/y")


def test_an_address_may_have_spaces_and_do_without_ports() -> None:
    assert split_address("zk1 , zk2:1, [::1]:2") == ("zk1,zk2:1,[::1]:2", "/dueq")


@pytest.mark.parametrize(
    "address", ["a:x", ":2181", "a:0", "a:65536", "a:1,", "", "a:1:2", "/dueq", "::1", "a..b:1"]
)
def test_what_is_no_address_is_refused_with_what_it_is(address: str) -> None:
    """A broker ended with a traceback of kazoo's."""
    with pytest.raises(ValueError, match=f"HOST:PORT.*{re.escape(repr(address))}"):
        split_address(address)


def test_folders_come_before_what_lies_in_them() -> None:
    folders = Layout("/x/y/").folders()
    assert folders[:3] == ["/x", "/x/y", "/x/y/brokers"]


@pytest.mark.parametrize("root", ["", "/", "x", "/x//y", "//", "/x/../y", "/."])
def test_a_root_is_an_absolute_path(root: str) -> None:
    with pytest.raises(ValueError, match="root of a cluster"):
        Layout(root)


def test_every_name_is_one_segment_and_no_two_are_the_same() -> None:
    names = [".", "..", "...", "a", "a/b", "a%2Fb", "%2E", "a.b", "ä"]
    segments = [segment(name) for name in names]
    assert len(set(segments)) == len(names)
    assert not any("/" in one or one in (".", "..") for one in segments)
    assert segment("departures-1.x_Y") == "departures-1.x_Y"
