"""Which addresses a gateway sends to: public ones, and those that its operator allows.

A caller of the API chooses the URL, and the gateway stands inside a network. So the address of the socket that is being
connected counts, no matter which name, number or other form of an address led to it. It is checked when the socket is
made, so nothing can change between check and use. Redirects are not followed, so no other URL comes in.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

from dueq.errors import InvalidRequest

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_GLOBAL_6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
"""The upper half of an interface whose lower half is an IPv4 address, under any prefix (RFC 5214)."""
_SPECIAL: Final = (ip_network("192.0.0.0/24"), ip_network("2001::/23"), ip_network("3fff::/20"))
"""Of protocols and documents (RFC 6890, RFC 9637): how much of them is global, builds of Python do not agree about."""
_AZURE: Final = IPv4Address("168.63.129.16")
"""Public by its number, and the host of a virtual machine at Azure, which has secrets to tell."""
_LOW_PORTS: Final = (80, 443)
"""Below 1024 are services that could take an HTTP request for commands of their own."""


class AddressRefused(OSError):
    """The gateway does not send to this address."""


class Addresses:
    """The addresses that one gateway may send to.

    Args:
        allowed: networks in CIDR notation that may be reached beside the public addresses.

    Raises:
        InvalidRequest: one of them is no network.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed: tuple[Network, ...] = tuple(_network(text) for text in allowed)

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Return a socket for an address of `getaddrinfo` that is about to be connected.

        Raises:
            AddressRefused: it is not one that may be reached.
        """
        family, kind, protocol, _, address = info
        self.check(address[0], address[1])
        return socket.socket(family, kind, protocol)

    def check(self, host: str, port: int) -> None:
        """Return if this address may be reached.

        Raises:
            AddressRefused: it may not.
        """
        try:
            found = ip_address(host.partition("%")[0])
        except ValueError:
            raise AddressRefused(f"{host!r:.80} is no address") from None
        inner = _unwrapped(found)
        if any(each in network for network in self._allowed for each in (found, inner)):
            return
        if not _is_public(inner):
            raise AddressRefused(f"{found} is not a public address: the gateway needs --webhook-allow for it")
        if port < 1024 and port not in _LOW_PORTS:
            raise AddressRefused(f"port {port} is refused: of those below 1024 only 80 and 443 are used")


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise InvalidRequest(f"a network is such as 10.0.0.0/8 or fd00::/8: {error}") from None


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None and not _is_public(address.sixtofour):
        return address.sixtofour
    low = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _NAT64 or int(address) >> 32 & 0xFFFF_FFFF in _ISATAP:
        return low
    return address if address.sixtofour is None else address.sixtofour


def _is_public(address: Address) -> bool:
    if any(address in network for network in _SPECIAL):
        return False
    if isinstance(address, IPv6Address):
        return address in _GLOBAL_6 and address.is_global and not address.is_multicast
    return address.is_global and not address.is_multicast and not address.is_reserved and address != _AZURE
