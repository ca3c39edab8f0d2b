"""Start `leasectl.pyz`, which is leasectl and its dependencies in one file.

`scripts/build-pyz` builds it.

- `start`: the archive's ``__main__``: check the Python version, unpack, start
- `unpack`: unpack the archive at its first start, into a private folder under /tmp
- `packed`: import from the archive where it can't be unpacked
"""
