"""A page with blocks of console input and output, for the tests of tools/console_blocks.py."""

from __future__ import annotations

PAGE = """# A page

```console
$ name=world
$ echo "hello $name"; echo oops >&2
hello world
oops
$ echo one
> echo two
one
two
```

```
$ false
```

```console
$ seq 3 | sed 's/^/took /'
took 17
...
$ (exit 22)
(exit code 22)
$ cat
```
"""
