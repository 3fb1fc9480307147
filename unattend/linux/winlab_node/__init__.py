"""What winlab does inside a Linux node, as root: one verb per call, settings in, a result out.

winlab sends this package as one file (a zip that Python runs) and calls ``python3 node.pyz VERB``, with settings as
JSON on the standard input. The last line of the standard output is the result, one line of JSON. A failure is a message
on the standard error and exit code 1. docs/worker-scripts.md has the contract. Every verb does only what is missing.

It uses only Python's standard library, 3.10 and newer. It is written for emulated CPUs, too: a zip's modules are
compiled at each call, so a verb loads only those that it needs. It starts few processes, and never reads a file twice
for its digest.
"""
