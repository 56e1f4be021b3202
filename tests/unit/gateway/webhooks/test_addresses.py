"""Which addresses a gateway sends to, whatever led to them."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("aiohttp")

from dueq.errors import InvalidRequest
from dueq.gateway.webhooks.addresses import Addresses, AddressRefused

PUBLIC = [
    "93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34", "64:ff9b::808:808",
    "2002:808:808::1", "2606:2800:220:1:0:5efe:808:808",
]  # fmt: skip
REFUSED = [
    "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1", "239.255.255.250", "240.0.0.1",
    "255.255.255.255", "192.0.2.1", "203.0.113.9",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:7f00:1", "::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "fe80::1", "fe80::1%lo", "fc00::1",
    "fd00:ec2::254", "ff02::1", "2001:db8::1", "2001::1", "2001:4:112::1", "3fff::1", "fec0::1", "not an address",
    "2606:2800:220:1:0:5efe:127.0.0.1", "2606:2800:220:1:200:5efe:a9fe:a9fe", "2002:808:808:1:0:5efe:10.0.0.1",
    "fe80::5efe:127.0.0.1", "2002:a00:1::5efe:808:808",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_reached(address: str) -> None:
    Addresses().check(address, 443)


@pytest.mark.parametrize("address", REFUSED)
def test_all_others_are_refused_in_every_form(address: str) -> None:
    with pytest.raises(AddressRefused):
        Addresses().check(address, 443)


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"])
def test_a_network_that_is_allowed_may_be_reached_at_any_port(address: str) -> None:
    allowed = Addresses(["127.0.0.0/8", "fd00::/8"])
    allowed.check(address, 25)
    allowed.check("fd00::7", 22)
    with pytest.raises(AddressRefused):
        allowed.check("10.0.0.1", 443)
    with pytest.raises(AddressRefused):
        allowed.check("::1", 443)


@pytest.mark.parametrize("port", [22, 25, 110, 1023])
def test_low_ports_of_other_services_are_refused(port: int) -> None:
    with pytest.raises(AddressRefused, match=f"port {port} is refused"):
        Addresses().check("93.184.216.34", port)
    Addresses().check("93.184.216.34", 8443)


@pytest.mark.parametrize("text", ["10.0.0.1/8", "everything", ""])
def test_what_is_no_network_cannot_be_allowed(text: str) -> None:
    with pytest.raises(InvalidRequest, match="a network is such as"):
        Addresses([text])


def test_a_socket_is_made_for_an_address_that_may_be_reached_only() -> None:
    [info, *_] = socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
    with pytest.raises(AddressRefused, match="--webhook-allow"):
        Addresses().socket(info)
    with Addresses(["127.0.0.1/32"]).socket(info) as made:
        assert made.family == socket.AF_INET
