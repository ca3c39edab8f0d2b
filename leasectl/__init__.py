"""Take, hold and give back leases on scarce resources, for CI step scripts and Python programs.

    with leasectl.lease("azure--install", wait="2h", release_after="20m") as lease:
        install(slot=lease.name)

A command line is parsed in `cli`; `client` is the library. Both call a verb in `leases`, `pools`,
`run` or `once`. A verb asks a backend. Imports go one way, down to `system` and `text`.

- `backends`: where leases come from: embedded pool, etcd, Kubernetes, lease proxy, Boskos
- `cli`: the command line
- `client`: the library
- `doctor`: find what is wrong, and repair it
- `engines`: stores that the pool algorithm runs on
- `http`: an HTTP client with deadlines
- `keeper`: the background process of a state directory
- `leases`: the verbs on leases
- `maintenance`: maintenance windows of nodes
- `once`: one job does shared work, the others use its result
- `pools`: the verbs on pools, statistics and simulation
- `pytest_plugin`: leases for tests
- `pyz`: start `leasectl.pyz`, all of leasectl in one file
- `reclaim`: take leases back by handshake
- `run`: run a command under a lease
- `server`: the lease proxy's protocol in front of pools
- `shell`: the Bash functions for step scripts
- `state`: the records of a state directory
- `system`: clocks, processes, signals, locks
- `text`: parse input, format output
- `errors`: all errors, with their exit codes
- `model`: facts that several packages share; words as in the Kubernetes LeaseSpec
"""

TYPE_CHECKING = False  # `typing` takes longer to load than all of this
if TYPE_CHECKING:
    from leasectl.backends.contract import Progress as Progress
    from leasectl.client import Client as Client
    from leasectl.client import Lease as Lease
    from leasectl.client import Loss as Loss
    from leasectl.client import Work as Work
    from leasectl.client import lease as lease
    from leasectl.errors import BackendUnreachable as BackendUnreachable
    from leasectl.errors import Cancelled as Cancelled
    from leasectl.errors import CorruptState as CorruptState
    from leasectl.errors import InvalidRequest as InvalidRequest
    from leasectl.errors import LeaseError as LeaseError
    from leasectl.errors import LeaseLost as LeaseLost
    from leasectl.errors import NoLease as NoLease
    from leasectl.errors import NotAllowed as NotAllowed
    from leasectl.errors import NotFound as NotFound
    from leasectl.errors import NotSupported as NotSupported
    from leasectl.errors import StateUnwritable as StateUnwritable
    from leasectl.errors import WorkFailed as WorkFailed

__version__ = "1.0.0rc1"

_OF_CLIENT = ("Client", "Lease", "Loss", "Work", "lease")
_OF_ERRORS = (
    "BackendUnreachable",
    "Cancelled",
    "CorruptState",
    "InvalidRequest",
    "LeaseError",
    "LeaseLost",
    "NoLease",
    "NotAllowed",
    "NotFound",
    "NotSupported",
    "StateUnwritable",
    "WorkFailed",
)
__all__ = ["Progress", *_OF_CLIENT, *_OF_ERRORS]


if not TYPE_CHECKING:  # else any name would be taken for an attribute

    def __getattr__(name: str) -> object:
        """Load what is used when it is first used."""
        if name in _OF_CLIENT:
            module = "leasectl.client"
        elif name in _OF_ERRORS:
            module = "leasectl.errors"
        elif name == "Progress":
            module = "leasectl.backends.contract"
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        value = globals()[name] = getattr(importlib.import_module(module), name)
        return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
