"""The Bash functions."""
