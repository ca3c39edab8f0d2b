"""Requests to an etcd cluster, answered by whichever member can.

A lost answer says nothing, so every request may be repeated.

- `gateway`: the operations of etcd's v3 JSON gateway, each within a deadline
- `requests`: build transactions, and read their responses
- `access`: send one request to one member, with a token where etcd wants one
- `answers`: map etcd's errors to ours
- `failures`: explain in one line why no member gave a usable answer
- `user`: read the user and password for etcd from a file
- `tokens`: share a token between the processes of a state directory
- `ahead`: send the next of several requests while the last answer is used
"""
