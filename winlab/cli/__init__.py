"""The command line: parse, call, render. One module per noun."""
