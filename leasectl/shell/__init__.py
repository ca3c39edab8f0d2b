"""The Bash functions of step scripts, as one static file: `leasectl.bash`.

``leasectl init bash`` prints it, and ``scripts/client.sh`` is a link to it, for mounting. In it
come, from top to bottom: traps that don't overwrite each other; ``lease__acquire`` and
``lease__reacquire``, release, cat and guard; what checks their options; how leasectl is found (on
PATH, or else ``leasectl.pyz`` in the folder of the sourced file, links not followed); and how it is
waited for in a way that a trap can interrupt.
"""
