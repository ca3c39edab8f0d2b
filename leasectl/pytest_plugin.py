"""A plugin for pytest: tests that share scarce resources, such as cloud accounts.

Under pytest-xdist each worker is a process, so it is a holder of its own. The workers queue in the
order of the pool, and a worker that is killed gives its leases back.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leasectl.client import Client, Lease

_MARK = (
    "lease(pool, *, scope='function', optional=False, count=1, where=(), wait=None, ...): "
    "run the test with a lease from a leasectl pool; the fixture `lease` is that lease. "
    "scope='session' keeps it for all tests of the worker; optional=True skips the test if there "
    "is none. The other keywords are those of leasectl.lease."
)
_LONGEST_LABEL = 200
_CLIENT = pytest.StashKey["Client"]()
_OF_SESSION = pytest.StashKey["dict[str, Lease]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("leasectl", "leases of leasectl")
    group.addoption(
        "--lease-wait",
        metavar="D",
        help="Wait at most this long for each lease, like 1h30m; 0: don't wait. Default: no limit.",
    )
    group.addoption(
        "--lease-backend",
        metavar="URL",
        help="Where the pools are. Default: as for the leasectl command.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the mark."""
    config.addinivalue_line("markers", _MARK)
    config.stash[_OF_SESSION] = {}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let a marked test use the fixture, although it doesn't name it."""
    names = getattr(item, "fixturenames", None)
    if names is not None and "lease" not in names and item.get_closest_marker("lease"):
        names.insert(0, "lease")


@pytest.fixture
def lease(request: pytest.FixtureRequest) -> Iterator[Lease]:
    """The lease of a test that is marked with ``@pytest.mark.lease(POOL)``."""
    mark = request.node.get_closest_marker("lease")
    if mark is None:
        pytest.fail("mark the test with @pytest.mark.lease(POOL)", pytrace=False)
    keywords = dict(mark.kwargs)
    scope, is_optional = keywords.pop("scope", "function"), keywords.pop("optional", False)
    if len(mark.args) != 1 or scope not in ("function", "session"):
        pytest.fail(f"write it as @pytest.mark.{_MARK.partition(':')[0]}", pytrace=False)
    pool = mark.args[0]
    if scope == "function":
        lease = _acquire(request.node, pool, keywords, is_optional=is_optional)
        with lease:
            yield lease
        return
    lease = _acquire_for_session(request.node, pool, keywords, is_optional=is_optional)
    yield lease
    if lease.is_lost:
        raise lease.loss()


def _acquire_for_session(
    item: pytest.Item, pool: Any, keywords: dict[str, Any], *, is_optional: bool
) -> Lease:
    """Return the worker's lease; acquire it again if it was lost."""
    kept, key = item.config.stash[_OF_SESSION], repr((pool, sorted(keywords.items())))
    if key in kept and not kept[key].is_held:
        kept.pop(key).release()
    if key not in kept:
        kept[key] = _acquire(item, pool, keywords, is_optional=is_optional)
    _note(item, kept[key])
    return kept[key]


def _acquire(item: pytest.Item, pool: Any, keywords: dict[str, Any], *, is_optional: bool) -> Lease:
    """Acquire a lease for a test; fail or skip the test without one."""
    import inspect

    from leasectl.client import Client
    from leasectl.errors import LeaseError, NotFound, spares_optional

    wait, backend = (item.config.getoption(f"--lease-{each}") for each in ("wait", "backend"))
    wanted = {**({} if wait is None else {"wait": wait}), **keywords}
    unknown = wanted.keys() - inspect.signature(Client.acquire).parameters.keys()
    if unknown:
        pytest.fail(f"@pytest.mark.lease: unknown keyword {', '.join(unknown)}", pytrace=False)
    wanted["labels"] = {**_labels(item), **wanted.get("labels", {})}
    try:
        lease = _client(item.config).acquire(pool, **wanted)
    except LeaseError as error:
        failure = error
    else:
        _note(item, lease)
        return lease
    text = str(failure)
    if isinstance(failure, NotFound) and isinstance(pool, str):
        there = f" --backend {backend}" if backend else ""
        text += (
            f"\nto create it: leasectl pool create {pool} --count {wanted.get('count', 1)}{there}"
        )
    if is_optional and spares_optional(failure):
        pytest.skip(text)
    pytest.fail(text, pytrace=False)


def _labels(item: pytest.Item) -> dict[str, str]:
    """Return what status shows of the holder: the test, and its worker."""
    test = item.nodeid.encode("ascii", "backslashreplace").decode()[-_LONGEST_LABEL:]
    worker = getattr(item.config, "workerinput", {}).get("workerid")
    return {"test": test, **({"worker": worker} if worker else {})}


def _client(config: pytest.Config) -> Client:
    if _CLIENT not in config.stash:
        from leasectl.client import Client

        config.stash[_CLIENT] = Client(config.getoption("--lease-backend"))
    return config.stash[_CLIENT]


def _note(item: pytest.Item, lease: Lease) -> None:
    """Note a lease for the reports of a test."""
    fences = [f" (fencing token {fence})" if fence else "" for fence in lease.fences]
    for name, fence in zip(lease.names, fences):
        item.user_properties.append(("lease", f"{name}{fence}"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Show the leases of a test that failed; the JUnit report has them as properties."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    names = [str(value) for key, value in item.user_properties if key == "lease"]
    if names:
        report.sections.append(("leases", "\n".join(names)))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Release what the session still holds; warn of what couldn't be released."""
    client = session.config.stash.get(_CLIENT, None)
    if client is None:
        return
    from leasectl.errors import LeaseError

    failed: list[str] = []
    kept = session.config.stash[_OF_SESSION]
    while kept:
        _, lease = kept.popitem()
        try:
            lease.release()
        except LeaseError as error:
            failed.append(f"{', '.join(lease.names)}: {error}")
    client.close()
    for text in failed:  # last, because a warning may be an error
        warnings.warn(text, stacklevel=1)
