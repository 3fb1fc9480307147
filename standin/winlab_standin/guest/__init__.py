"""What runs inside the stand-in: Setup, and the installed system.

These modules also import on the host, where the tests try their logic. They use the standard library, and in two places
``spnego`` and ``cryptography``; nothing of winlab, which is not on the media.
"""

# The Windows that is stood in for: Windows Server 2022 with the updates of October 2024 (KB5044281), since those
# before it break Calico.
NAME = "Windows Server 2022 Standard Evaluation"
BUILD = "20348"
REVISION = 2762
VERSION = f"10.0.{BUILD}.{REVISION}"
