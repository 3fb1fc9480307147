"""winlab's version, which is the stand-in's, too."""

__version__ = "0.1.0"
