"""TensorFlow for adjudge: the backend, and a door with the signature of TensorFlow's own check."""

from typing import Any

from adjudge.errors import installed_by

__all__ = ["TensorflowBackend", "compute_gradient"]


def __getattr__(name: str) -> Any:
    # the backend imports TensorFlow, which takes seconds, and the door stands on top of the library
    with installed_by("pip install 'adjudge[tensorflow]'"):
        if name == "TensorflowBackend":
            from adjudge_tensorflow.backend import TensorflowBackend

            return TensorflowBackend
        if name == "compute_gradient":
            from adjudge_tensorflow.door import compute_gradient

            return compute_gradient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
