"""The contract between winlab and its scripts in nodes: each script's name, settings and result.

A call is a value: ``there.run(on_both.Push(program="kubelet", restore=False))`` gives a :class:`on_both.Pushed`.
docs/worker-scripts.md explains what the scripts do. Calls of a distribution's own scripts are in
winlab/design/distribution/. The unit tests check the scripts, the stand-in and that document against all of them.

Settings are winlab's own, so types are enough. Results come from outside: each is validated on arrival.
"""
