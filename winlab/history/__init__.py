"""What a journal tells: runs and their steps, what they waited for, how long the rest takes. Pure."""
