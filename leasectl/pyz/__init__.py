"""What only ``leasectl.pyz`` needs: leasectl and all it depends on, in one file.

`scripts/build-pyz` packs it: all modules together, and with `start` as its ``__main__``. Python
runs that straight from the archive: it refuses a Python that is too old, has `unpack` put
everything into a folder under /tmp that is private and named for the content, and goes on from
there, where modules are compiled once and not at each start. Where no such folder can be had,
leasectl runs from the archive: `packed` reads its modules into memory and imports them from there.
"""
