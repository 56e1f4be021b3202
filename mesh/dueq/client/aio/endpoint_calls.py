"""The part of a client that works with endpoints (see `endpoints`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dueq.client import endpoints, times
from dueq.client.aio.connection import AsyncConnection
from dueq.client.backoff import Backoff
from dueq.client.endpoints import DEFAULT_IN_FLIGHT, DEFAULT_TIMEOUT_S, GRACE_S, EndpointInfo
from dueq.client.times import Due, Seconds


class AsyncEndpointCalls:
    """A client's calls that concern endpoints: URLs to which gateways send the messages of a topic.

    All that change something raise as `update_topic` does, too.
    """

    connection: AsyncConnection

    async def set_endpoint(
        self,
        name: str,
        topic: str,
        url: str,
        *,
        secrets: Sequence[str] | None = None,
        request_timeout: Seconds = DEFAULT_TIMEOUT_S,
        max_in_flight: int = DEFAULT_IN_FLIGHT,
        headers: Mapping[str, str] | None = None,
        matching: Mapping[str, str | Sequence[str]] | None = None,
        targets: bool = False,
        backoff: Backoff | None = None,
        if_version: int | None = None,
        timeout: float | None = None,
    ) -> str:
        """Have gateways send the messages of a topic to a URL, or change how they do.

        Args:
            name: 1–255 of `A-Z a-z 0-9 . _ -`, unique in the mesh, unless another topic's endpoint gets it at the
                same moment: both are served then, and calls mean that of the first topic by name.
            topic: an existing topic; it has one endpoint at most.
            url: https:// or http://, at most 1,024 characters. Gateways refuse addresses that are not public, unless
                they are told otherwise.
            secrets: to sign requests with, the newest first; up to four. Each is `whsec_` and the base64 of 24 to 64
                bytes, or `whsk_` and the base64 of a private key of ed25519 (64 bytes: seed and public key). None:
                those that the endpoint has, or a new one.
            request_timeout: how long a receiver may take for its answer, 0.1 s to 30 minutes.
            max_in_flight: requests of one gateway at a time, 1 to 1,024.
            headers: that every request carries, at most 1,024 bytes; their values are never shown.
            matching: values by the names of headers. A message without one of the values is finished and not sent.
            targets: send a message that has a `Target` there, without the endpoint's `headers`. Whoever may schedule a
                message then chooses where gateways send requests. Otherwise such a message is dead.
            backoff: of the topic, as in `update_topic`. None: as it is; 5 s, 20 s, 80 s, …, 6 h if it has none.
            if_version: the version that the endpoint must have; 0: there must be none; None: any.
            timeout: seconds for each request.

        Returns:
            The secret that was made for the endpoint, which is never shown again; "" if none was. It is returned once
            it is stored, also where some partitions have no leader that applies the change in time, and where the
            answer was lost and the endpoint is found to have it.

        Raises:
            InvalidRequest: a value is outside its limits, the name is that of another topic's endpoint, or the topic
                has another endpoint.
            VersionDiffers: the endpoint has another version than `if_version`.
        """
        made = await self.connection.follow(
            endpoints.put(
                name,
                topic,
                url,
                secrets,
                request_timeout,
                max_in_flight,
                headers,
                matching,
                targets,
                backoff,
                if_version,
            ),
            timeout,
        )
        return made.secret

    async def endpoints(self, *, timeout: float | None = None) -> list[EndpointInfo]:
        """Return all endpoints by name."""
        return await self.connection.follow(endpoints.infos(), timeout)

    async def endpoint(self, name: str, *, timeout: float | None = None) -> EndpointInfo:
        """Return an endpoint.

        Raises:
            EndpointNotFound: there is none of this name.
        """
        return await self.connection.follow(endpoints.info(name), timeout)

    async def rotate_endpoint(
        self,
        name: str,
        secret: str | None = None,
        *,
        grace: Seconds = GRACE_S,
        timeout: float | None = None,
    ) -> str:
        """Sign requests with a new secret; for a while they have signatures of the present ones, too.

        Args:
            name: of the endpoint.
            secret: the new one; None: one is made.
            grace: how long the present ones are used beside it, up to 366 days.
            timeout: seconds for each request.

        Returns:
            The new secret, which is never shown again. One that is made is returned as by `set_endpoint`.

        Raises:
            EndpointNotFound: there is none of this name.
        """
        clock = await self.connection.clock(True, timeout)
        steps = endpoints.rotate(name, secret, grace, clock() // 1000)
        made = await self.connection.follow(steps, timeout)
        return secret or made.secret

    async def pause_endpoint(
        self, name: str, until: Due | None = None, *, timeout: float | None = None
    ) -> None:
        """Pause the topic of an endpoint, as `pause` does.

        Raises:
            EndpointNotFound: there is none of this name.
        """
        until_ms = 0
        if until is not None:
            clock = await self.connection.clock(times.is_relative(until), timeout)
            until_ms = times.end_ms(until, clock, "until")
        await self.connection.follow(endpoints.pause(name, until_ms), timeout)

    async def resume_endpoint(self, name: str, *, timeout: float | None = None) -> None:
        """Send again: end the pause of the topic, and use an endpoint that was disabled.

        Raises:
            EndpointNotFound: there is none of this name.
        """
        await self.connection.follow(endpoints.resume(name), timeout)

    async def delete_endpoint(
        self, name: str, *, if_version: int | None = None, timeout: float | None = None
    ) -> None:
        """Send nothing more to a URL. The topic and its messages stay as they are.

        Raises:
            EndpointNotFound: there is none of this name.
            VersionDiffers: the endpoint has another version than `if_version`.
        """
        await self.connection.follow(endpoints.delete(name, if_version), timeout)
