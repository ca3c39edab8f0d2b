"""Load the libraries of an extra."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from leasectl.errors import NotSupported


def require_extra(extra: str, modules: Sequence[str], *, of: str) -> None:
    """Refuse a command that needs missing libraries.

    Args:
        extra: The extra that installs them: ``leasectl[extra]``.
        modules: The libraries.
        of: The command, as it is written on a command line.

    Raises:
        NotSupported: A library is missing.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return
    libraries = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
    install = f"pip install '.[{extra}]', in a clone of leasectl"
    # In leasectl.pyz, packed or unpacked, its start is ``__main__``.
    if importlib.util.find_spec("leasectl.pyz.start") is None:
        raise NotSupported(
            f"{of} needs {libraries}, which leasectl.pyz can't use; use an installed "
            f"leasectl: {install}"
        )
    raise NotSupported(f"{of} needs {libraries}, not installed here; install with: {install}")
