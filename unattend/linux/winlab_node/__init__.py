"""What winlab does inside a Linux node, as root: one verb a call, settings in, a result out.

winlab sends this package as one file (a zip that Python runs) and calls ``python3 node.pyz VERB``, with settings as
JSON on the standard input. The last line of the standard output is the result, one line of JSON; a failure is a
message on the standard error and exit code 1. docs/worker-scripts.md has the contract. Every verb looks at what is
there and does only what is missing.

Only Python's standard library, 3.10 and newer. Written for emulated CPUs, too: a zip's modules are compiled at each
call, so a verb loads only those that it needs; few processes are started, and no file is read twice to learn its
digest.
"""
