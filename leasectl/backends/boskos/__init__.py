"""``boskos+http://``: Boskos.

An acquisition has an owner of its own, so a lost grant can be counted.

- `backend`: Boskos as a backend
- `requests`: Boskos' address, login, requests and limits
- `connection`: send requests, judge answers and outages, and count what there is of a type
- `acquisition`: acquire: ask again and again, and count what was lost on the way
- `holding`: renew and release
"""
