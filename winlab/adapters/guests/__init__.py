"""One interface to the guests of both systems: ssh and WinRM."""
