"""One request to a real receiver, and the ways in which it can go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from multidict import CIMultiDict

from dueq import limits
from dueq.gateway.webhooks.addresses import Addresses
from dueq.gateway.webhooks.answers import Answer
from dueq.gateway.webhooks.sending import Sender
from tests.receiver import Received, Receiver, Say

LOOPBACK = Addresses(["127.0.0.0/8"])
LOOKING_UP = """
import asyncio, socket, threading
from multidict import CIMultiDict
from dueq.gateway.webhooks.addresses import Addresses
from dueq.gateway.webhooks.sending import Sender

async def run():
    sender = Sender(Addresses())
    answer = await sender.send("POST", "http://nobody.test/", CIMultiDict(), b"", 0.1)
    await sender.close()
    print(answer.text)

socket.getaddrinfo = lambda *given, **more: threading.Event().wait()
asyncio.run(run())
"""


def post(
    *urls: str, addresses: Addresses = LOOPBACK, timeout_s: float = 30.0, body: bytes = b"x"
) -> list[Answer]:
    """Return the answers of requests, one after the other, over one sender."""

    async def run() -> list[Answer]:
        sender = Sender(addresses)
        try:
            return [
                await sender.send("POST", url, CIMultiDict({"content-type": "text/plain"}), body, timeout_s)
                for url in urls
            ]
        finally:
            await sender.close()

    return asyncio.run(run())


def test_a_payload_arrives_as_it_is() -> None:
    with Receiver() as receiver:
        body = bytes(range(256)) * 8192
        [answer] = post(receiver.url + "?a=%2F", body=body)
        assert answer.status == 204
        request = receiver.next()
        assert (request.path, request.body) == ("/hook?a=%2F", body)


def test_redirects_are_answers_and_lead_nowhere() -> None:
    with Receiver() as other, Receiver(lambda _: Say(307, {"location": other.url})) as receiver:
        [answer] = post(receiver.url)
        assert answer.status == 307
        assert other.requests.empty()


def test_a_receiver_that_says_nothing_is_given_up() -> None:
    held = threading.Event()
    with Receiver(lambda _: Say(wait=held)) as receiver:
        [answer] = post(receiver.url, timeout_s=0.2)
        assert answer == Answer(0, "no answer within 0.2 s", seconds=answer.seconds)
        held.set()


def test_nobody_there_is_an_answer_too() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        [answer] = post(f"http://127.0.0.1:{free.getsockname()[1]}/")
    assert answer.status == 0
    assert "Cannot connect" in answer.text


@pytest.mark.parametrize(("status", "text"), [(200, ""), (500, "x" * 1024)])
def test_an_endless_answer_is_read_only_at_its_beginning(status: int, text: str) -> None:
    with Receiver(lambda _: Say(status, body="endless")) as receiver:
        first, second = post(receiver.url, receiver.url)
        assert (first.status, first.text) == (second.status, second.text) == (status, text)


def test_what_a_receiver_says_of_a_failure_is_kept() -> None:
    with Receiver(lambda _: Say(500, {"retry-after": "7"}, b"no space \xff")) as receiver:
        [answer] = post(receiver.url)
        assert (answer.status, answer.text, answer.retry_after) == (500, "no space \ufffd", "7")


def test_cookies_and_proxies_of_the_environment_play_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with Receiver(lambda _: Say(204, {"set-cookie": "a=b"})) as receiver:
        assert [answer.status for answer in post(receiver.url, receiver.url)] == [204, 204]
        receiver.next()
        assert "cookie" not in receiver.next().headers


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "0.0.0.0",
        "[::]", "[::1]", "127.0.0.1.",
    ],
)  # fmt: skip
def test_the_loopback_is_refused_in_every_spelling(host: str) -> None:
    with Receiver() as receiver:
        [answer] = post(f"http://{host}:{receiver.port}/hook", addresses=Addresses())
        assert answer.status == 0
        assert receiver.requests.empty()


def test_a_refused_address_is_named() -> None:
    [answer] = post("http://169.254.169.254/latest/meta-data/", addresses=Addresses())
    assert answer.text.startswith("refused: 169.254.169.254 is not a public address")


def test_a_name_is_as_good_as_the_address_that_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that tells a public address to whoever checks, and the loopback to whoever connects, gains nothing."""
    told = ["93.184.216.34", "127.0.0.1"]

    def answers(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (told.pop(), port))]

    with Receiver() as receiver:
        monkeypatch.setattr(socket, "getaddrinfo", answers)
        [answer] = post(f"http://rebinding.test:{receiver.port}/hook", addresses=Addresses())
        assert told == ["93.184.216.34"]
        assert answer.text.startswith("refused: 127.0.0.1")
        assert receiver.requests.empty()


def test_a_name_that_no_thread_looks_up_is_a_failed_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error went past the answers: the message stayed leased, and the look-up under way."""

    def answers(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run(url: str) -> list[Answer]:
        sender = Sender(LOOPBACK)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", refuse)
                refused = await sender.send("POST", url, CIMultiDict(), b"", 30.0)
            assert sender._lookups._room.under_way == 0
            return [refused, await sender.send("POST", url, CIMultiDict(), b"", 30.0)]
        finally:
            await sender.close()

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    with Receiver() as receiver:
        refused, sent = asyncio.run(run(f"http://receiver.test:{receiver.port}/hook"))
    assert (refused.status, sent.status) == (0, 204)
    assert "can't start new thread" in refused.text


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    certificate = tmp_path / "own.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=127.0.0.1",
        "-days",
        "2",
    ]
    try:
        subprocess.run(
            [*command, "-keyout", certificate, "-out", tmp_path / "cert.pem"], check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", certificate)
    with Receiver(context=context) as receiver:
        [answer] = post(receiver.url.replace("http:", "https:"))
        assert answer.status == 0
        assert "certificate" in answer.text.lower()


def test_a_connection_that_was_closed_while_idle_is_no_failure() -> None:
    """The server closes after its answer without saying so; the next request finds a dead connection."""
    served = []

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _address = listener.accept()
            with connection:
                connection.recv(65_536)
                served.append(1)
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert [answer.status for answer in post(url, url)] == [204, 204]
        thread.join(10)
    assert len(served) == 2


def test_a_receiver_may_see_what_it_got(tmp_path: Path) -> None:
    seen: list[Received] = []

    def answer(request: Received) -> Say:
        seen.append(request)
        return Say(200, body=b"thanks")

    with Receiver(answer) as receiver:
        assert [each.status for each in post(receiver.url, receiver.url, body=b"hello")] == [200, 200]
    assert [request.body for request in seen] == [b"hello", b"hello"]


@pytest.mark.parametrize(
    "said",
    [
        b"", b"hello\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000, b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, b"\x00" * 1000,
        b"HTTP/1.1 204 No\r\nset-cookie: \xff\xfe\r\n\x00: 1\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_http_is_a_failed_attempt(said: bytes) -> None:
    """Whatever a receiver sends and however it ends, there is an answer, and the next request works."""

    def serve(listener: socket.socket) -> None:
        connection, _address = listener.accept()
        with connection:
            connection.recv(65_536)
            with contextlib.suppress(OSError):
                connection.sendall(said)

    with Receiver() as receiver, socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        answer, then = post(f"http://127.0.0.1:{listener.getsockname()[1]}/", receiver.url, timeout_s=5.0)
        thread.join(10)
    assert answer.status == 0
    assert answer.text
    assert then.status == 204


def test_an_answer_that_is_packed_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    with Receiver(lambda _: Say(500, {"content-encoding": "gzip"}, bomb)) as receiver:
        [answer] = post(receiver.url)
        assert answer.status == 500
        assert len(answer.text) <= 1024


def test_a_flood_of_interim_answers_is_cut_off() -> None:
    """It would keep the gateway busy for as long as the time-out lasts."""
    ended = threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _address = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            while True:
                connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)
        ended.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        [answer] = post(f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout_s=600.0)
        assert ended.wait(60)
    assert (answer.status, answer.text) == (
        0,
        "ClientConnectionError: more than 16 answers of status 1xx",
    )


def test_a_few_interim_answers_are_passed_over_each_time() -> None:
    said = b"HTTP/1.1 102 Processing\r\n\r\n" * 16 + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"

    def serve(listener: socket.socket) -> None:
        connection, _address = listener.accept()
        with connection, contextlib.suppress(OSError):
            while connection.recv(65_536):
                connection.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert [each.status for each in post(url, url, timeout_s=60.0)] == [200, 200]


EARLY = b"HTTP/1.1 103 Early Hints\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ([b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\njunk"], 204),
        ([EARLY + b"HTTP/1.1 204 No Content\n\njunk"], 204),
        ([b"HTTP/1.1 204 No Content\r\n", b"\r\njunk"], 204),
        ([b"HTTP/1.1 204 No Content\r\n\r", b"\njunk"], 204),
        ([EARLY + b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 junk"], 503),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\njunk"], 200),
    ],
)
def test_the_answer_counts_though_no_http_follows_it(said: list[bytes], status: int) -> None:
    """A message that has arrived would be sent again until it is dead. The connection is not used again."""
    connected: list[int] = []

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _address = listener.accept()
            connected.append(1)
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while connection.recv(65_536):
                    for piece in said:
                        connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert [each.status for each in post(url, url, timeout_s=60.0)] == [status, status]
    assert len(connected) == 2


def send(sender: Sender, number: int, whose: str) -> Coroutine[Any, Any, Answer]:
    return sender.send("POST", f"http://h{number}.test:1/", CIMultiDict(), b"", 60.0, whose)


def test_names_that_nobody_answers_for_hold_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that the rest of the gateway uses stay free."""
    released, real = threading.Event(), socket.getaddrinfo

    async def run() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Queue[str]()

        def stuck(host: str, *given: Any, **more: Any) -> Any:
            loop.call_soon_threadsafe(begun.put_nowait, host)
            released.wait(60)
            return real("127.0.0.1", *given, **more)

        monkeypatch.setattr(socket, "getaddrinfo", stuck)
        sender = Sender(LOOPBACK)
        under_way = [
            asyncio.create_task(send(sender, number, f"endpoint {number}"))
            for number in range(limits.WEBHOOK_LOOKUPS_MAX // 2)
        ]
        for _ in under_way:
            await begun.get()
        assert await asyncio.to_thread(lambda: 7) == 7
        released.set()
        assert {(await each).status for each in under_way} == {0}
        await sender.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_process_ends_while_a_name_is_looked_up() -> None:
    """A resolver may take a minute to give up, and whoever ends a gateway may not wait as long."""
    said = subprocess.run(
        [sys.executable, "-c", LOOKING_UP], check=True, capture_output=True, text=True, timeout=60
    )
    assert said.stdout == "no answer within 0.1 s\n"


def test_the_dead_names_of_one_endpoint_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the look-ups are shared out; who was told to wait comes when others have ended, even in vain."""
    released, real = threading.Event(), socket.getaddrinfo
    most = limits.WEBHOOK_LOOKUPS_MAX

    async def run() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Queue[str]()

        def look(host: str, *given: Any, **more: Any) -> Any:
            if host != "alive.test":
                loop.call_soon_threadsafe(begun.put_nowait, host)
                released.wait(60)
            return real("127.0.0.1", *given, **more)

        monkeypatch.setattr(socket, "getaddrinfo", look)
        sender = Sender(LOOPBACK)
        dead = [asyncio.create_task(send(sender, number, "dead")) for number in range(2 * most)]
        for _ in range(most // 2):
            await begun.get()
        with Receiver() as receiver:
            url = f"http://alive.test:{receiver.port}/hook"
            answer = await sender.send("POST", url, CIMultiDict(), b"", 60.0, "alive")
        assert answer.status == 204
        for task in dead[: most // 2]:  # nobody waits for these any more, and their threads are still at it
            task.cancel()
        await asyncio.sleep(0)
        assert begun.qsize() == 0
        released.set()
        assert {(await each).status for each in dead[most // 2 :]} == {0}
        await sender.close()

    asyncio.run(asyncio.wait_for(run(), 60))
