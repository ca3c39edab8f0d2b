"""What commands show: `output` prints it, as text, a `table` for a `terminal`, or JSON.

Of an acquisition: while it lasts `waiting`, on a terminal in one line (`waiting_line`) of what
there is to tell (`waiting_facts`), then the handle by `handle_output`. Of `status`: `status_table`
by its `status_columns`, again by `status_watch`; where a server only counts `status_counts`, where
it tells nothing `status_handles` (either shown as `status_looks` has it), and where there are none
`no_pools`. `release_forced` is what `release --force` says, `reclaim_shown` what `reclaim` would
ask for and `reclaim_progress` how far it is, `once_results` what `once` has kept.

Of the past: `event_lines`, `stats_table`, and `picture` with its `time_axis`, which `plot` puts
into a file. Of a simulation: `simulate_shown`, and until then `simulate_progress`.
"""
