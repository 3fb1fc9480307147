"""What a journal shows: runs and their steps, what they waited for, how long the rest takes. Pure."""
