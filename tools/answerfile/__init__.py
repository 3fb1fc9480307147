"""What tools/unattend_check.py checks: one module for each part of a Windows answer file. Standard library only."""
