"""What a ticket becomes, or a request at once, until it is over.

What `new_claims` say is the same whoever makes them. `claims` makes them and gives them back;
of those that nobody was told of, `late_writes` sees to it that none comes later. `renewals` gives
them their full time again, `forced_ends` takes them away. `notes` are left at them, and read along
with them (`notes_at`).
"""
