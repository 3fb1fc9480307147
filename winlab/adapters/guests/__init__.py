"""Guests: logins by ssh and WinRM, and running winlab's scripts."""
