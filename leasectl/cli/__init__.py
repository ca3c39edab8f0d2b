"""One module per command: parse, call the service, print. The only place that prints, exits and
reads the environment."""
