"""JAX for adjudge: the backend, and doors with the signatures of `jax.test_util`."""

from typing import Any

from adjudge.errors import installed_by

with installed_by("pip install 'adjudge[jax]'"):
    from adjudge_jax.backend import JaxBackend as JaxBackend

__all__ = ["JaxBackend", "check_grads", "check_jvp", "check_vjp"]


def __getattr__(name: str) -> Any:
    # the doors stand on top of the library, the backend below it: loaded when asked for
    if name in ("check_grads", "check_jvp", "check_vjp"):
        from adjudge_jax import door

        return getattr(door, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
