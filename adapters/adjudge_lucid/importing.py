"""How Lucid is imported: on every Python that it names, and with words where it fails.

Lucid 2.16 names 3.12 as its oldest Python, but its annotations name classes that are defined
further down, which Python evaluates late from 3.14 on. For older Pythons its modules are compiled
as if each began with `from __future__ import annotations`.
"""

from __future__ import annotations
import __future__

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

LATE = (3, 14)
"""The Python that evaluates annotations when they are asked for (PEP 649)."""


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        # the bytecode in __pycache__ was compiled otherwise
        path = self.get_filename(fullname)
        flag = __future__.annotations.compiler_flag
        code: CodeType = compile(self.get_data(path), path, "exec", flag, dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "lucid":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def defer_annotations() -> None:
    """Lets `import lucid` succeed on Pythons that evaluate annotations early. Others are left
    alone, and so are all modules that are not Lucid's.
    """
    if sys.version_info < LATE and not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def imported() -> Any:
    """Returns the module `lucid`.

    Raises `ModuleNotFoundError` where it is not installed, and `ImportError` with the remedy where
    it is, and fails.
    """
    defer_annotations()
    try:
        return importlib.import_module("lucid")
    except ModuleNotFoundError as error:
        if error.name == "lucid":
            raise
        raise ImportError(
            f"Lucid needs the package '{error.name}', which is not installed; "
            "install all that it needs: pip install 'adjudge[lucid]'"
        ) from error
    except Exception as error:  # what a release raises that does not fit the machine
        python = ".".join(map(str, sys.version_info[:2]))
        raise ImportError(
            f"Lucid does not import on Python {python} and {sys.platform}: "
            f"{type(error).__name__}: {error}; version 2.16 does from Python 3.12 on "
            "(pip install 'adjudge[lucid]'), version 3 on Python 3.14 and macOS"
        ) from error
