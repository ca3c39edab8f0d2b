"""What pools consist of, and how they come to.

`admin` has the use cases: showing pools, adding to one, making them as a file says. A file is read
in two steps: `leasectl.text.documents` makes parts of its YAML or JSON that know their line, and
`definitions` reads them as pools (`defined`), in the form of Boskos' resources (what these are:
`defined_properties`, which pool is the default: `defined_default`), and refuses what can't be
meant. `changes` then compares what is to be with what is, and `carrying_out` does the difference:
what is held stays.

How a pool grants, by options or by a file, is checked and put together in `settings`, and so is in
`properties` what its resources are.

Names that move, leave, are cordoned, or expected where they belong are `memberships`; those that
come by themselves, perhaps held, `joining`. Where one is, and why, is its `whereabouts`. Whoever
makes requests impossible by that hears whose: `unmet_waiters`.

What is shown of pools are the facts in `shown`. `showing` makes them of what a store tells and of
the records of this state directory, and `shown_json` writes and reads them as JSON, texts made
safe as `shown_fields`. What of them people read in several places has its words in
`membership_words`. Of pools that aren't ours, and that their server only counts, `counted` tells,
and `counted_json` as JSON.

What happened in a pool `history` reads and follows (as JSON: `event_json`), and what came of that
tell the others: `timeline` puts together from when to when each thing lasted (`pool_histories` does
so for a backend), `statistics` has the numbers of a window of time, `series` how things went over
time, and `statistics_json` both as JSON. `expected_wait` estimates how long somebody who waits will
wait yet.

What would happen to jobs that come to a pool is found out in `simulation`.
"""
