"""The command line: the only package that prints, exits and reads the environment.

A command imports only what it uses; rare branches import inside functions.

- `app`: run a command line, a plain one without click; turn an error into a line and an exit code
- `root`: the ``leasectl`` group: all commands, loaded when used
- `groups`: groups of commands, and their help
- `described`: a command's options, described for both parsers
- `command`: make click commands of descriptions
- `context`: open the state directory and the backend that the environment names
- `loaded`: what a process does once its command is loaded
- `options`: options of several commands
- `pool_options`: options of commands on pools and reclaims
- `maintenance_options`: options of ``leasectl maintenance``
- `priority`: a default priority from the environment
- `input_file`: read a file that a command line names
- `simulate_subject`: read what `simulate` is to run
- `extra`: load the libraries of an extra
- `serve_env`: the variables of `serve --print-env`, and whether that server still runs
- `completion_scripts`: completion scripts for shells
- `completion_values`: values to complete: pools, names, handles, properties
- `commands`: the commands
- `rendering`: what they print
"""
