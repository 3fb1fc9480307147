"""What runs inside the stand-in: Setup, and the installed system.

These modules also import on the host, where the tests try their logic. They use the standard library, and in two places
``spnego`` and ``cryptography``; nothing of winlab, which is not on the media.
"""
