"""HIPS autograd for adjudge. Its arrays are NumPy's, so it is asked for by name:
`adjudge.gradcheck(f, x, backend="autograd")`.
"""

from adjudge.errors import installed_by

with installed_by("pip install 'adjudge[autograd]'"):
    from adjudge_autograd.backend import AutogradBackend

__all__ = ["AutogradBackend"]
