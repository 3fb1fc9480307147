"""The steps that make a lab. Each reaches a state (states.py), and checks the real system to see whether it is done."""
