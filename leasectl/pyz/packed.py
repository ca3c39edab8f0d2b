"""Import from the archive where it can't be unpacked.

All modules are one member, a tar: packed each by itself they take half as much again, as each
begins without what those before have in common with it, and is named twice in the archive.

In the archive this module also stands in for ``leasectl/__init__.py``. Whoever has the archive on
its path, as `start` and a keeper have, so imports this one first: it reads the member into memory,
has all modules come from there, and makes way for the package whose name it bears.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import SourceLoader
from importlib.util import spec_from_file_location
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from zipimport import zipimporter

MEMBER = "modules.tar"

_BLOCK = 512
_NAME = slice(0, 100)
_SIZE = slice(124, 135)  # in octal


def files_in(tar: bytes) -> dict[str, bytes]:
    """What each file of a tar holds, if it is one of plain files with short names.

    scripts/build-pyz makes no other. `tarfile` could read it, but takes longer to import than the
    whole member takes to inflate.
    """
    files = {}
    at = 0
    while tar[at : at + 1].strip(b"\0"):  # at the end are empty blocks
        head, start = tar[at : at + _BLOCK], at + _BLOCK
        end = start + int(head[_SIZE], 8)
        files[head[_NAME].rstrip(b"\0").decode()] = tar[start:end]
        at = end + -end % _BLOCK
    return files


class MemoryImporter(SourceLoader):
    """Finds and loads modules whose sources are in memory.

    Args:
        root: The path that they seem to lie under: the archive's.
        files: The content of each, by its path under the root.
    """

    def __init__(self, root: str, files: Mapping[str, bytes]) -> None:
        self._root = root
        self._files = {f"{root}/{name}": content for name, content in files.items()}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Find a module, as `sys.meta_path` asks; None when it isn't in here."""
        try:
            return spec_from_file_location(fullname, self.get_filename(fullname), loader=self)
        except ImportError:
            return None

    def get_filename(self, fullname: str) -> str:
        """Where a module seems to lie.

        Raises:
            ImportError: It isn't in here.
        """
        module = f"{self._root}/{fullname.replace('.', '/')}"
        for path in (f"{module}/__init__.py", f"{module}.py"):
            if path in self._files:
                return path
        raise ImportError(f"no module {fullname} in {self._root}", name=fullname)

    def get_data(self, path: str | bytes) -> bytes:
        """What a file holds, given the path that it seems to have.

        Raises:
            OSError: It isn't in here.
        """
        try:
            return self._files[os.fsdecode(path)]
        except KeyError:
            raise FileNotFoundError(f"no {os.fsdecode(path)} in memory") from None


def _stand_in(loader: zipimporter) -> None:
    """Import all modules from memory from here on, the package `leasectl` first."""
    sys.meta_path.insert(0, MemoryImporter(loader.archive, files_in(loader.get_data(MEMBER))))
    del sys.modules["leasectl"]
    importlib.import_module("leasectl")


if __name__ == "leasectl":
    _stand_in(__spec__.loader)  # type: ignore[arg-type]
