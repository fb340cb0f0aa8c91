"""tinygrad for adjudge."""

from adjudge.errors import installed_by

with installed_by("pip install 'adjudge[tinygrad]'"):
    from adjudge_tinygrad.backend import TinygradBackend

__all__ = ["TinygradBackend"]
