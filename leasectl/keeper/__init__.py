"""The one background process of a state directory; it is there as long as something needs it.

`leasectl.state.keeper_process` starts ``python -m leasectl.keeper DIRECTORY`` (`__main__`) and
wakes it. Its `loop` sleeps in one poll(2): until a time, a wake-up, a signal, the end of a process
that holds something, or a server's answer. Then it goes one of its `rounds`: takes what came of
requests under way, and what has changed of the `handles` that it sees to, gives back what the dead
held and what is due by now (`releases`), renews what nobody else renews (`renewals`), answers for
holders who are asked to give something back (`answers`), keeps names in their pools on servers for
as long as processes live (`stays`), removes pools that were made for work and that the dead have
left (`unused_pools`), and lets the embedded pools' waiters pass who could have claimed and didn't
come (`witness`). What is asked of a `server` a thread asks; what failed is tried again ever more
seldom (`retries`). Every event has a line in the `log`. It ends in the transaction in which it
finds that nothing needs it.
"""
