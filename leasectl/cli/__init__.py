"""The command line: the only place that prints, exits and reads the environment.

Each command is a file in `commands`, and what people see of what it found out is in `shown`. From
the program's name to the command leads `app`, which turns whatever is raised into one line and an
exit code: by the `short_way`, without click, where it is one of those that scripts call most and
its command line is plain; else by click, as `root` has all commands (those of commands: `groups`).
`described` is what a command takes, for both of them, and `command` makes it click's, whose help is
wrapped and written by `help_text`. What follows when all is read is `loaded`. A command opens what
verbs work on by `context`.

What several commands take are `options`, `pool_options`, `time_options`, `reclaim_options` and
`maintenance_options`; a `priority` may come from the environment, an `input_file` from stdin, and
`simulate_subject` is what `simulate` is to try. Whom `use`, `marks` and `answer` are about find the
`held_handles`. What not everybody has installed, `extra` asks for. What `serve --print-env` prints
is `serve_env`, and who finds that server gone hears of it by `gone_server`. Shells complete by
`completion_scripts`, with `completion_values`.

A command pays only for what it uses: what others need is imported inside functions.
"""
