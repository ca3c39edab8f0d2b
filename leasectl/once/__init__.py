"""Work that one does and the others use: ``leasectl once``.

A `work` is a key with its inputs. What has become of it so far is in its `rounds`: who failed while
who waited, and who died at it: pure functions, which say whether it is to be run once more.

Whoever does the work holds a lease on it, and its result is guarded by that lease's fence.
"""
