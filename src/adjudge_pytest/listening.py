"""Told of every check of this process, from the moment that adjudge is imported, not before."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LISTENERS = "adjudge.report.report"


class Listening(MetaPathFinder):
    """Calls `listener` with the report of every check between `begin` and `end`.

    Most test-suites never import adjudge, and then neither does this: it waits among the finders
    of modules for the first import, which may be that of a test's own body.
    """

    def __init__(self, listener: Callable[[Any], None]) -> None:
        """See the class."""
        self._listener = listener
        self._listening = ExitStack()
        self._module: ModuleType | None = None

    def begin(self) -> None:
        """Listens now, or as soon as there is something to listen to."""
        module = sys.modules.get(LISTENERS)
        if module is None:
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)
        elif module is not self._module:  # the first, or adjudge was imported anew
            self._listen(module)

    def end(self) -> None:
        """Listens no more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._listening.close()
        self._module = None

    def _listen(self, module: ModuleType) -> None:
        self._listening.close()
        self._listening.enter_context(module.listening(self._listener))
        self._module = module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module of listeners as the other finders find it, with a loader that tells us."""
        if fullname != LISTENERS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self._listen)
        return spec


class _Telling(Loader):
    """The loader that it is given, and a call afterwards."""

    def __init__(self, loader: Loader, then: Callable[[ModuleType], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec: Any = module.__spec__
        spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)
