"""The steps that make a lab. Each reaches a state (states.py), and can tell from reality whether it is done."""
