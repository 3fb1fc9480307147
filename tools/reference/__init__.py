"""The pages of docs/ that list what the code has: commands with their options, and messages of errors."""
