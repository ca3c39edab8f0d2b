"""The pools in etcd themselves.

`pools` makes and changes them, names included, whose memberships are `members`' affair. `listing`
says which there are, and refuses one that isn't. `settings` changes how a pool grants, and what the
settings before have brought about; `removals` takes whole pools away, with what their holders have.

`shown` is what is in them, as people see it, at one revision; `shown_facts` what is so of each
resource beside who holds it.
"""
