"""What runs inside the stand-in: Setup, and the installed system.

These modules also import on the host, where the tests try their logic. They use the standard library, ``winlab.run``
and ``winlab.errors``, and in two places ``spnego`` and ``cryptography``.
"""
