"""The command line: the only place that prints, exits and reads the environment.

`app` imports the module of a command, and turns whatever is raised into one line and an exit code.
The commands that scripts call most are read without click, by the `short_way`, where their command
line is plain, as `described`; all else is click's: `root` has all commands, and `command` what each
of them does with a command line beside that. What follows when it is read is `loaded`. A command's
module has its name (`acquire`, `pool_create`) and reads thus: parse by `options` (a priority from
the environment is `priority`), open the service by `context`, call a verb of `leasectl.leases`,
`leasectl.pools` or `leasectl.run`, print by `output`. Who waits does so inside `waiting.reported`,
which shows progress, on a terminal in one line (`waiting_line`) of what there is to tell
(`waiting_facts`); what was acquired is printed before it is announced (`handle_output`). What
`reclaim` would ask for is `reclaim_shown`, how patiently `reclaim_options`, and how far it is
`reclaim_progress`. What `release --force` says is `release_forced`, and whom `use`, `marks` and
`answer` are about find the `held_handles`. Commands of commands (`pool`) are `groups`. What
`status` shows (`leasectl.pools.shown`), `status_table` writes, by the columns of `status_columns`,
and `status_watch` repeats; of pools that a server only counts tell `status_counts`, and where there
are none `no_pools`. `pool_options` are those that commands on pools share, `time_options` those for
a stretch of the past. `table` is what any table looks like, and `terminal` what it goes to: how
wide, with colours or without. What `serve --print-env` prints is `serve_env`, and who finds that
server gone is told so by `gone_server`.

What `events` tells are `event_lines`, or JSON. What `stats` tells, `stats_table` writes. What it
and `simulate` draw on a terminal is a `picture`, with its `time_axis`; `plot` puts it into a file.
What not everybody has installed for that and for `serve`, `extra` asks for.
What `simulate` is to try, `simulate_subject` makes of its options; `simulate_shown` is what came of
it, `simulate_progress` how far it is. Files that options name are read by `input_file`.

What `once` has kept, `once_results` shows and forgets. Which cluster `maintenance` is about, and
how things are called there, `maintenance_options` say. What a cluster needs for leases,
`kubernetes_manifest` prints.

Shells complete by `completion_scripts`, with what `completion_values` finds.

A command pays only for what it uses: what others need is imported inside functions.
"""
