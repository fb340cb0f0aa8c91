"""This module finds the cases that Python files, folders, patterns and modules declare.

A case is declared by a variable of a module, `softmax = adjudge.Case(f, inputs)`, or within a list
or tuple that is one. To find it the module is executed; of a folder only those files are, in which
the name `Case` occurs.
"""

from __future__ import annotations

import ast
import glob
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from adjudge.engine import entries
from adjudge.errors import InputError
from adjudge.suites.results import Place
from adjudge.verbs import Case

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_PATTERN = re.compile(r"[*?\[]")
LEFT_OUT = ("__pycache__", "node_modules", "build", "dist")
"""Folders that are not searched, beside those whose name begins with a dot and those of virtual
environments: what they hold is not the user's own. The list is ours."""


@dataclass(frozen=True)
class Declared:
    """A case, and where it is declared."""

    name: str
    """The name that is unique among all cases of the run."""
    case: Case
    place: Place


@dataclass(frozen=True)
class Uncollected:
    """A file or module whose cases could not be found out, and why."""

    target: str
    reason: str
    remedy: str = ""
    file: str = ""
    """Where it was raised, in the user's own code."""
    line: int = 0

    def __str__(self) -> str:
        """Returns the target with the reason, and the remedy below it."""
        at = f"{self.file}:{self.line}: " if self.file else ""
        remedy = f"\n  {self.remedy}" if self.remedy else ""
        return f"{self.target}: {at}{self.reason}{remedy}"


@dataclass
class Collection:
    """What was found: cases, and what could not be looked into."""

    cases: list[Declared] = field(default_factory=list)
    uncollected: list[Uncollected] = field(default_factory=list)


def collect(targets: Sequence[str], keyword: str = "") -> Collection:
    """Returns the cases of files, folders, patterns (`checks/*.py`) and modules.

    Args:
        targets: Each may end with `:NAME`, which takes one case of a file or module.
        keyword: Only cases are taken whose name contains it, in upper or lower case.

    Raises:
        InputError: A target names nothing that there is, or declares no case.
    """
    found, seen = Collection(), set[Place]()
    for target in targets:
        place, name = _split(target)
        for file in _files(place):
            module = _executed(file, found)
            if module is None:
                continue
            declared = [
                (key, case) for key, case in _declared(module) if name in (None, key, case.name)
            ]
            if not declared and file == place:
                raise _none_declared(place, name, module)
            for key, case in declared:
                where = Place(file, key)
                if where not in seen and keyword.lower() in f"{file}:{case.name}".lower():
                    seen.add(where)
                    found.cases.append(Declared(case.name, case, where))
    _name_apart(found.cases)
    return found


_of_this_process: dict[str, ModuleType] = {}
"""The files that this process has executed to judge cases, so that each is executed once."""


def declared_at(place: Place) -> Case:
    """Returns the case that stands there, for a process that judges it.

    Raises:
        InputError: Nothing of that name stands there any more.
    """
    if place.target not in _of_this_process:
        _of_this_process[place.target] = _module(place.target)
    for key, case in _declared(_of_this_process[place.target]):
        if key == place.key:
            return case
    raise InputError(
        f"{place.target} declares no case {place.key!r}", "was the file changed in between?"
    )


def _name_apart(cases: list[Declared]) -> None:
    """Gives cases of the same name their place as their name."""
    counts = Counter(one.name for one in cases)
    for k, one in enumerate(cases):
        if counts[one.name] > 1:
            cases[k] = Declared(f"{one.place.target}:{one.place.key}", one.case, one.place)


def _none_declared(place: str, name: str | None, module: ModuleType) -> InputError:
    known = ", ".join(key for key, _ in _declared(module)) or "none"
    return InputError(
        f"{place} declares no case" + (f" named {name!r} (it has: {known})" if name else ""),
        "declare one: softmax = adjudge.Case(f, inputs), or CASES = [adjudge.Case(...), ...]",
    )


def _split(target: str) -> tuple[str, str | None]:
    if Path(target).exists():
        return target, None
    place, colon, name = target.rpartition(":")
    return (place, name) if colon and place else (target, None)


def _files(place: str) -> list[str]:
    """Returns the files or the module that a target stands for."""
    if not place:  # which is this folder for pathlib
        raise InputError("an empty target names nothing", "give '.' for the cases of this folder")
    path = Path(place)
    if path.is_dir():
        files = [str(one) for one in _python_files(path) if _may_declare(one)]
        if not files:
            raise InputError(
                f"no Python file in {place} declares a case",
                "a file does that which names Case: softmax = adjudge.Case(f, inputs)",
            )
        return files
    if _PATTERN.search(place):
        files = sorted(one for one in glob.glob(place, recursive=True) if one.endswith(".py"))
        if not files:
            raise InputError(f"no Python file matches {place}", "quote the pattern, and look at it")
        return files
    if path.is_file():
        return [place]
    if place.endswith(".py") or "/" in place:
        raise InputError(f"there is no file {place}", "give the path of a Python file or a folder")
    if not _MODULE.fullmatch(place):
        raise InputError(f"{place!r} names neither a file nor a module", "see adjudge check --help")
    return [place]


def _python_files(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not (name.startswith(".") or name in LEFT_OUT)
            and not Path(root, name, "pyvenv.cfg").exists()
        )
        yield from (Path(root, name) for name in sorted(files) if name.endswith(".py"))


def _may_declare(path: Path) -> bool:
    """Returns whether the name `Case` occurs in the code of a file, or the file is no code, which
    its execution then says.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return b"adjudge" in path.read_bytes()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name == "Case":
                return True
    return False


def _declared(module: ModuleType) -> Iterator[tuple[str, Case]]:
    for key, value in vars(module).items():
        if isinstance(value, Case):
            yield key, value
        elif isinstance(value, list | tuple):
            for k, item in enumerate(value):
                if isinstance(item, Case):
                    yield f"{key}[{k}]", item


def _executed(target: str, found: Collection) -> ModuleType | None:
    """Returns the module; what it raises goes into the collection, since one broken file must not
    hide the cases of the others.
    """
    try:
        return _module(target)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's file does when it is executed
        found.uncollected.append(_reason(target, error))
        return None


def _reason(target: str, error: BaseException) -> Uncollected:
    """Returns why a file could not be executed, with the innermost line that is the user's own."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        root = error.name.partition(".")[0]
        commands = [entry.command for entry in entries() if entry.root == root]
        remedy = f"install it: {next(iter(commands), f'pip install {root}')}"
        return Uncollected(target, f"{root} is not installed", remedy, *_own_line(target, error))
    first = str(error).partition("\n")[0]
    reason = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return Uncollected(target, reason, "", *_own_line(target, error))


def _own_line(target: str, error: BaseException) -> tuple[str, int]:
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0
    frames = traceback.extract_tb(error.__traceback__)
    path = Path(target)
    own = [f for f in frames if path.is_file() and Path(f.filename).resolve() == path.resolve()]
    if not own:
        own = [f for f in frames if Path(f.filename).resolve().is_relative_to(Path.cwd())]
    return (own[-1].filename, own[-1].lineno or 0) if own else ("", 0)


def _module(target: str) -> ModuleType:
    path = Path(target)
    if path.is_file():
        return _file_module(path.resolve())
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name is not None and (target + ".").startswith(error.name + "."):
            raise InputError(
                f"there is no file, folder or module {target}",
                "give the path of a file, or install the module",
            ) from error
        raise


def _file_module(path: Path) -> ModuleType:
    """Returns the module of a file, which is executed as a script is: what stands beside it can be
    imported.
    """
    spec = importlib.util.spec_from_file_location(_free_name(path), path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no Python file", "give a .py file, or a module's name")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    with ExitStack() as undone:
        sys.modules[spec.name] = module
        undone.callback(sys.modules.pop, spec.name)
        # Not by the loader: its cache takes a file for the same that was changed within a second,
        # and was executed before.
        exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), vars(module))  # noqa: S102
        undone.pop_all()  # it was executed, and stays
    return module


def _free_name(path: Path) -> str:
    """Returns the stem of a file, or where another module has that name, one of the whole path."""
    taken = sys.modules.get(path.stem)
    if taken is None or getattr(taken, "__file__", None) == str(path):
        return path.stem
    return "_".join(part for part in path.with_suffix("").parts[1:])
