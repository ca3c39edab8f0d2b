"""Modules of this package are imported with less ado, as they are half of what a command does.

Python looks for each in a list of folders, and whether a folder has changed each time; asks many
small questions of its path and of its compiled form; and reads that by a buffer. Of ours it is
known where they are. What is read is the same: the compiled form that Python keeps, if it is that
of the source as it is now. In any other case nothing is found here, and Python does as ever.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

import leasectl
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from importlib.util import MAGIC_NUMBER
    from marshal import loads
else:  # those that are there already, under the names that they have there
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader
    from marshal import loads

_OURS = "leasectl."
_SUFFIX = f".{sys.implementation.cache_tag}.pyc"
# A compiled form begins with its version, and that it goes by the time and size of its source; or
# that it is right whatever the source looks like, as leasectl.pyz leaves them.
_BEGIN = MAGIC_NUMBER + bytes(4)
_BEGIN_UNCHECKED = MAGIC_NUMBER + (1).to_bytes(4, "little")
_HEAD_BYTES = 16
_MOST_BYTES = 1 << 18
_32_BITS = 0xFFFFFFFF


class _Loader(SourceFileLoader):
    """Python's own, with the compiled form at hand."""

    code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        code, self.code = self.code, None
        return super().get_code(fullname) if code is None else code


class _Finder:
    """Finds what was compiled before."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(_OURS) or path is None or len(path) != 1:
            return None
        folder, last = path[0], name.rpartition(".")[2]
        found = _compiled(name, f"{folder}/{last}.py", f"{folder}/__pycache__/{last}{_SUFFIX}")
        if found is None:
            folder = f"{folder}/{last}"
            source, cached = f"{folder}/__init__.py", f"{folder}/__pycache__/__init__{_SUFFIX}"
            found = _compiled(name, source, cached)
            if found is not None:
                found.submodule_search_locations = [folder]
        return found


def _compiled(name: str, source: str, cached: str) -> ModuleSpec | None:
    """A module that was compiled, and whose source is still the same."""
    try:
        fd = os.open(cached, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, _MOST_BYTES)
        finally:
            os.close(fd)
        is_current = data[:8] == _BEGIN_UNCHECKED or (
            data[:8] == _BEGIN and data[8:16] == _made_of(os.stat(source))
        )
    except OSError:
        return None
    if not is_current or len(data) == _MOST_BYTES:
        return None
    loader = _Loader(name, source)
    try:
        loader.code = loads(memoryview(data)[_HEAD_BYTES:])
    except (ValueError, EOFError, TypeError):
        return None
    spec = ModuleSpec(name, loader, origin=source)
    spec.has_location = True
    spec.cached = cached
    return spec


def _made_of(source: os.stat_result) -> bytes:
    times_and_size = (int(source.st_mtime) & _32_BITS, source.st_size & _32_BITS)
    return b"".join(each.to_bytes(4, "little") for each in times_and_size)


def import_with_less_ado() -> None:
    """Import modules of this package so from here on, where they are files that Python compiles."""
    loader = leasectl.__spec__.loader
    is_usual = type(loader) is SourceFileLoader and sys.pycache_prefix is None
    if is_usual and not sys.flags.optimize:
        sys.meta_path.insert(0, _Finder)
