"""Load the libraries of an extra."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from leasectl.errors import NotSupported


def require_extra(extra: str, modules: Sequence[str], *, of: str) -> None:
    """Refuse what can't be done without libraries that aren't here.

    Args:
        extra: Which brings them: ``leasectl[extra]``.
        modules: Those that are needed.
        of: What needs them, as it is written on a command line.

    Raises:
        NotSupported: Some are missing.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return
    install = f"pip install '.[{extra}]', in a clone of leasectl"
    if _is_archive():
        raise NotSupported(
            f"{of} needs {' and '.join(missing)}, which leasectl.pyz can't use; use an installed "
            f"leasectl: {install}"
        )
    raise NotSupported(
        f"{of} needs {' and '.join(missing)}, not installed here; install with: {install}"
    )


def _is_archive() -> bool:
    """Tell whether this is leasectl.pyz, packed or unpacked: there, its start is ``__main__``."""
    return importlib.util.find_spec("leasectl.pyz.start") is None
