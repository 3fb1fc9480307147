"""One file per verb: what users do with a lab."""
