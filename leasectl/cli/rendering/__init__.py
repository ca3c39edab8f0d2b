"""What commands print.

- `output`: text or JSON on stdout, everything else on stderr
- `table`: tables that fit a terminal
- `charts`: charts on a terminal
- `plot`: charts in a file: ``--plot FILE.svg|png``
- `waiting`: wait: show progress, heed signals, notice that the reader has gone
- `waiting_line`: the line on a terminal that shows how a wait goes
- `waiting_facts`: what is told about a wait: position, time, holders
- `handle_output`: a handle, in each output format
- `status_text`: the text of `status`, whatever the backend tells
- `status_columns`: the tables of pools in it
- `status_watch`: ``status --watch``
- `release_forced`: release by force, and print what that has ended
- `reclaim_progress`: the plan, progress and result of `reclaim`
- `once_results`: the results of `once`: list, print, forget
- `stats_table`: what `events` and `stats` print
- `simulation_report`: what `simulate` prints
"""
