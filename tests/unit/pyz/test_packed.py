"""Modules that are imported from memory, as from ``leasectl.pyz`` where it can't be unpacked."""

from __future__ import annotations

import importlib
import io
import pkgutil
import sys
import tarfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.pyz.packed import MemoryImporter, files_in

FILES = {
    "in_memory/__init__.py": b"NAME = __name__\n",
    "in_memory/inner/__init__.py": b"",
    "in_memory/inner/deep.py": b"# \xc3\xa4\ndef fail():\n    raise ValueError('deep')\n",
    "in_memory/inner/data.bash": b"echo\n",
}


@pytest.fixture
def importer(tmp_path: Path) -> Iterator[MemoryImporter]:
    importer = MemoryImporter(str(tmp_path / "a.pyz"), FILES)
    sys.meta_path.insert(0, importer)
    yield importer
    sys.meta_path.remove(importer)
    for name in [name for name in sys.modules if name.startswith("in_memory")]:
        del sys.modules[name]


def test_packages_and_modules_seem_to_lie_under_the_archive(
    importer: MemoryImporter, tmp_path: Path
) -> None:
    deep = importlib.import_module("in_memory.inner.deep")
    package = sys.modules["in_memory"]
    assert (package.NAME, package.__package__) == ("in_memory", "in_memory")
    assert package.__path__ == [str(tmp_path / "a.pyz/in_memory")]
    assert deep.__file__ == str(tmp_path / "a.pyz/in_memory/inner/deep.py")
    assert (deep.__package__, hasattr(deep, "__path__")) == ("in_memory.inner", False)
    assert list(tmp_path.iterdir()) == []


def test_what_lies_beside_them_is_read(importer: MemoryImporter) -> None:
    assert pkgutil.get_data("in_memory.inner", "data.bash") == b"echo\n"
    with pytest.raises(FileNotFoundError, match=r"/a\.pyz/in_memory/inner/other"):
        pkgutil.get_data("in_memory.inner", "other")


def test_a_traceback_shows_their_lines(importer: MemoryImporter) -> None:
    deep = importlib.import_module("in_memory.inner.deep")
    with pytest.raises(ValueError, match="deep") as raised:
        deep.fail()
    assert "raise ValueError('deep')" in "".join(traceback.format_tb(raised.tb))


@pytest.mark.parametrize("name", ["in_memory.other", "in_memory.inner.data", "click"])
def test_what_is_not_there_is_looked_for_elsewhere(importer: MemoryImporter, name: str) -> None:
    assert importer.find_spec(name) is None
    with pytest.raises(ImportError, match=f"no module {name} in "):
        importer.get_filename(name)


def test_a_tar_is_read_whatever_the_size_of_its_files() -> None:
    files = {f"folder/{size}": b"\0" * size for size in (0, 1, 511, 512, 513, 70_000)}
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    assert files_in(tar.getvalue()) == files
