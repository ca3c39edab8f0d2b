"""Parse input and format output: pure functions.

Input is checked where it enters, since it reaches paths, shells and terminals.

- `documents`: read JSON and YAML documents, with line numbers for errors
- `durations`: parse and format durations and times
- `naming`: check names of pools and resources
- `properties`: read fields of JSON objects, and properties of resources
- `wording`: make foreign text safe for a terminal; cut text to a width; write counts and lists;
  find similar names
- `yaml_text`: write YAML that all YAML readers read alike
"""
