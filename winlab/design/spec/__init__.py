"""What the user asks for: the spec, from a shorthand, a name in specs/ or a YAML file."""

from winlab.design.spec.load import names
from winlab.design.spec.model import Spec

load = Spec.load

__all__ = ["Spec", "load", "names"]
