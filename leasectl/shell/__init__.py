"""The Bash functions for step scripts, as one static file: `leasectl.bash`.

``leasectl init bash`` prints it; ``scripts/client.sh`` is a link to it.
"""
