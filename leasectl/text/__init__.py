"""Texts, to be read and to be shown: functions of a text, with no effects.

What comes in: `durations`, `moments` in the past, names (`naming`), `properties` and `fields` of
JSON, checked wherever they enter, since they reach paths, shells and terminals; and `documents` of
YAML or JSON, whoever wrote them (`plain_json` has the usual JSON). What goes out: foreign text made
safe for a terminal (`printable`), cut to the room there is (`width`), numbers of things and lists
of them (`wording`), YAML that all read alike (`yaml_text`), what was probably meant by a name that
isn't there (`suggestions`), and what tells one text from all others (`digest`).
"""
