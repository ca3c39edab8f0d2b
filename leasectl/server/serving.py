"""Start the server process, serve, and shut down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from leasectl.backends.kinds import check_url, kind_of, not_served
from leasectl.errors import CantListen, LeaseError
from leasectl.keeper.log import Log
from leasectl.leases.opening import open_service
from leasectl.leases.service import Service
from leasectl.model import Process
from leasectl.server.api import Api
from leasectl.server.connection import ClientConnection, Room
from leasectl.server.metrics import Notices
from leasectl.server.page.editions import Editions
from leasectl.server.page.live import Live
from leasectl.server.page.routes import Page
from leasectl.server.page.sign_in import SignIn
from leasectl.server.served_leases import Rules, ServedLeases
from leasectl.server.threads import OTHER_FILES, most_files
from leasectl.server.tokens import Network, Tokens
from leasectl.state.backup import take_notice, unknown_since
from leasectl.state.directory import State, removed
from leasectl.system import afterwards
from leasectl.system.process import open_pidfd

# The kernel's queue takes a burst of clients; asyncio accepts a few of them before it looks at what
# the clients that it has have sent. One number of its own would be both.
_BACKLOG = 4096
_ACCEPTED_AT_ONCE = 16
# Long enough for answers on their way; waits are ended, not waited for.
_SHUTDOWN_SECONDS = 5
_KEEP_ALIVE_SECONDS = 30
# A waiting client takes two: its connection and its pipe.
_FILES_PER_CLIENT = 2
# Connections without a request. Clients ask as soon as they have one.
_MOST_SILENT = 1000


def open_served(url: str, *, warn: Callable[[str], None], logs: bool) -> Service:
    """Open the state directory, and the backend that is to be served.

    Args:
        url: Of the backend.
        warn: Called with a line for the server's operator.
        logs: Once there is a state directory, write these lines to its ``serve.log`` instead.

    Raises:
        InvalidRequest: There is no such backend.
        NotSupported: It can't be served.
        BackendUnreachable: Its pools can't be read.
    """
    check_url(url)
    if not kind_of(url).can_be_served:
        raise not_served(url)
    service = open_service(url, for_many=True, warn=warn)
    if logs:
        log = Log(service.state.path("serve.log"), service.clock)
        service = Service(service.state, service.context._replace(warn=log.write))
    restored_from = take_notice(service.state)
    if restored_from is not None:
        service.context.warn(unknown_since(restored_from))
    if service.kind.has_pools:
        service.pools.pools()  # a server that isn't there is no use
    return service


def listen(host: str, port: int) -> socket.socket:
    """Take an address.

    Args:
        host: A name or an address.
        port: 0 for any that is free.

    Raises:
        CantListen: It can't be had.
    """
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(_BACKLOG)
        except BaseException:
            bound.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CantListen(
            f"can't listen on {where}: {reason}; choose another address with --listen, "
            "or port 0 for one that is free"
        ) from error
    bound.setblocking(False)
    return bound


def url_of(bound: socket.socket) -> str:
    """The URL under which this machine reaches a listening socket."""
    host, port = bound.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def serve(
    service: Service,
    bound: socket.socket,
    *,
    rules: Rules,
    tokens: Tokens | None,
    trusted: tuple[Network, ...],
    guard: Process | None,
    own_name: str,
    ready: Callable[[], None],
) -> None:
    """Serve until TERM, INT or HUP, or until the guard ends. With tokens, the server reads them
    again on HUP instead of ending.

    Args:
        service: On the state directory and backend to serve; it warns the server's operator.
        bound: A listening socket.
        rules: For clients of the lease proxy's protocol.
        tokens: Clients must show one of them; None: no need.
        trusted: The proxies whose word for a client's address counts.
        guard: The process whose end is the server's, and that of all leases granted here; None for
            none.
        own_name: The host name that the server was told to listen at.
        ready: Called as soon as requests are answered.

    Raises:
        StateUnwritable: The state directory was removed or replaced, as by ``restore``. No other
            process would see what this server grants.
    """
    # Its warnings are of writing to clients that are gone, which is told to whom it concerns.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    afterwards.go_on()
    leases = ServedLeases(service, rules=rules, guard=guard)
    editions = Editions(service.for_another_thread, needs_token=tokens is not None)
    live = Live(editions, now=service.clock.elapsed)
    page = Page(live, SignIn(tokens, port=bound.getsockname()[1], clock=service.clock))
    api = Api(leases, page, tokens=tokens, trusted=trusted, own_name=own_name)

    async def run() -> None:
        server = _Server(_config(api.app, _room()), ready)

        def end() -> None:
            server.force_exit = server.should_exit
            server.should_exit = True
            leases.close()
            live.end()
            api.close()

        def end_once() -> None:
            if not server.should_exit:
                end()

        def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            # Such as too many open files, which asyncio tells once for each place in the backlog.
            if server.should_exit:
                return  # what it had planned for later finds the socket closed
            error = context.get("exception")
            leases.notices.tell(type(error).__name__, f"{context['message']}: {error}")

        asyncio.get_running_loop().set_exception_handler(failed)
        _end_by_signal(end, tokens, leases.notices)
        _end_with(guard, end)
        _end_with_directory(service.state, end_once)
        with leases.watching():
            counting = asyncio.ensure_future(api.begin_counting())
            await server.serve(sockets=[bound])
            counting.cancel()
        await live.close()

    asyncio.run(run())
    leases.close_threads()
    if service.state.was_removed():
        raise removed(service.state.directory)


def _end_by_signal(end: Callable[[], None], tokens: Tokens | None, notices: Notices) -> None:
    """End at TERM, INT and HUP, unless they are ignored; with tokens, HUP reads them again."""

    def reread() -> None:
        assert tokens is not None
        try:
            tokens.reread()
        except LeaseError as error:
            notices.tell("tokens", f"the tokens weren't changed: {error}")

    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signum == signal.SIGHUP and tokens is not None:
            loop.add_signal_handler(signum, reread)
        elif signal.getsignal(signum) != signal.SIG_IGN:
            loop.add_signal_handler(signum, end)


def _end_with(guard: Process | None, end: Callable[[], None]) -> None:
    if guard is None:
        return
    pidfd = open_pidfd(guard)
    if pidfd is None:
        end()
    else:
        asyncio.get_running_loop().add_reader(pidfd, end)


def _end_with_directory(state: State, end: Callable[[], None]) -> None:
    """End once the state directory was removed or replaced."""
    removal = state.removal_watch()

    def look() -> None:
        removal.clear()
        if state.was_removed():
            end()

    if removal.fd is not None:
        asyncio.get_running_loop().add_reader(removal.fd, look)


def _room() -> Room:
    """Share the files that this process may open between clients that wait and silent ones."""
    files = most_files() - OTHER_FILES
    most_silent = max(1, min(files // 8, _MOST_SILENT))
    return Room(max(1, (files - most_silent) // _FILES_PER_CLIENT), most_silent)


def _config(app: ASGIApp, room: Room) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=partial(ClientConnection, room=room),  # type: ignore[arg-type]
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_ACCEPTED_AT_ONCE,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


class _Server(uvicorn.Server):
    """uvicorn's server, without its own signal handlers, that tells when it is there."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(_BACKLOG)
        self._ready()
