"""What is wanted: the spec, from a shorthand, a name in specs/ or a YAML file."""
