"""The commands. A module reads its options, calls a verb, and shows the result."""
