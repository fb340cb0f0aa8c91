"""Engines for test modules that are imported where one of them may be absent.

`from frameworks import torch` gives `None` then, and every test that needs it is skipped by its
mark. Nothing is imported before it is asked for.
"""

import importlib
from typing import Any

MODULES = {
    "torch": "torch",
    "jax": "jax",
    "jnp": "jax.numpy",
    "mx": "mlx.core",
    "tinygrad": "tinygrad",
    "anp": "autograd.numpy",
    "adjudge_autograd": "adjudge_autograd",
    "adjudge_torch": "adjudge_torch",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(name)
    try:
        return importlib.import_module(MODULES[name])
    except ImportError:
        return None
