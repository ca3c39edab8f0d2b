"""What backends have in common whose leases don't come from pools of their own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

from leasectl.backends.kinds import no_pools


class WithoutPools:
    """Refuses whatever is asked of pools, in the words of `kinds`.

    Attributes:
        url: What chose the backend.
    """

    url: str

    @property
    def pools(self) -> NoReturn:
        raise no_pools(self.url)

    @property
    def members(self) -> NoReturn:
        raise no_pools(self.url)

    @property
    def notes(self) -> NoReturn:
        raise no_pools(self.url)

    @property
    def values(self) -> NoReturn:
        raise no_pools(self.url)

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        return nullcontext()
