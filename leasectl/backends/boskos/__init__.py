"""``boskos+http://``: Boskos.

An acquisition has an owner of its own, so a lost grant can be counted.

- `opening`: open the backend, and what is asked beside it
- `backend`: Boskos as a backend
- `requests`: Boskos' address, login, requests and limits
- `connection`: send requests, and judge answers and outages
- `acquisition`: acquire: ask again and again, and count what was lost on the way
- `holding`: renew and release
- `status`: counts of a type, and whether it exists
"""
