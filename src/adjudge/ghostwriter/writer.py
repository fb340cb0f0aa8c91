"""This module is the verb `write`: a module in, the text of a test file out, formatted as
`ruff format` would.

Each function is tried in a process of its own kind: a function that hangs is given up after its
time, and one that takes its process along is one reason in the list.
"""

from __future__ import annotations

import multiprocessing
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pebble

from adjudge.engine import backend_named
from adjudge.errors import InputError
from adjudge.findings import Verdict
from adjudge.ghostwriter.conventions import CONVENTIONS, TANGENTS
from adjudge.ghostwriter.inputs import Call, Constant, Numbers
from adjudge.ghostwriter.subjects import (
    LeftOut,
    Method,
    Subject,
    Why,
    engine_of,
    function_class,
    imported,
    modules,
    subjects,
)
from adjudge.ghostwriter.trial import Found, judged

Listener = Callable[[Found | LeftOut], None]


@dataclass(frozen=True)
class Written:
    """A test file, and what it is made of."""

    text: str
    tests: list[Found]
    left_out: list[LeftOut]

    @property
    def failing(self) -> list[Found]:
        """Returns the tests that fail as they were written."""
        return [one for one in self.tests if one.verdict is not Verdict.PASS]


def write(
    target: str,
    *,
    backend: str | None = None,
    recursive: bool = False,
    methods: bool = False,
    keyword: str = "",
    timeout: float | None = 60.0,
    on_result: Listener | None = None,
) -> Written:
    """Returns tests for the derivatives of what a module defines.

    Its functions are called with inputs that are made up. Nothing of its text is evaluated.

    Args:
        target: A module, or `MODULE:NAME` for one function of it.
        backend: The engine on which the functions compute. `None`: the one that the module uses.
        recursive: Whether public submodules of a package are looked into.
        methods: Whether methods and properties are tried of classes that are no functions, as
            functions of the arguments of the class and their own.
        keyword: Only functions are taken whose name contains it, in upper or lower case.
        timeout: The seconds that each function has, in another process. `None`: they are called in
            this process, and have as long as they take.
        on_result: Called with each result as it comes.

    Raises:
        InputError: The module cannot be imported, or has nothing that can be tested.
        BackendError: The engine is unknown or not installed.
    """
    name, colon, member = target.partition(":")
    module = imported(name)
    engine = backend_named(backend) if backend is not None else engine_of(module)
    found: list[Subject | LeftOut] = list(
        subjects(module, engine, member if colon else None, methods=methods)
    )
    if recursive:
        for below in modules(module):
            found += (
                [below] if isinstance(below, LeftOut) else subjects(below, engine, methods=methods)
            )
    chosen = _each_once([one for one in found if keyword.lower() in _label(one).lower()])
    if not any(isinstance(one, Subject) for one in chosen):
        reasons = [f"\n  {one.name}: {one.reason}" for one in chosen if isinstance(one, LeftOut)]
        named = f" with {keyword!r} in its name" if keyword else ""
        raise InputError(
            f"{target} has no function to test{named}{''.join(reasons)}",
            "give the module that defines the functions; -r looks into those below a package",
        )
    tests, left_out = list[Found](), list[LeftOut]()
    trials = _here if timeout is None else _in_a_process
    for result in trials(chosen, engine.name, timeout or 0.0):
        (tests if isinstance(result, Found) else left_out).append(result)  # type: ignore[arg-type]
        if on_result is not None:
            on_result(result)
    return Written(text_of(target, engine.name, tests, left_out), tests, left_out)


def _label(one: Subject | LeftOut) -> str:
    return one.label if isinstance(one, Subject) else one.name


def _each_once(found: Iterable[Subject | LeftOut]) -> list[Subject | LeftOut]:
    """Returns what was found without what a package offers again from one of its submodules."""
    seen, once = set[Any](), list[Subject | LeftOut]()
    for one in found:
        if isinstance(one, Subject):
            method = one.kind == "method"
            key = one.find() if method else id(getattr(imported(one.module), one.label))
            if key in seen:
                continue
            seen.add(key)
        elif one in once:
            continue
        once.append(one)
    return once


def _here(chosen: list[Subject | LeftOut], engine: str, _: float) -> Iterator[Found | LeftOut]:
    for one in chosen:
        yield judged(one, engine) if isinstance(one, Subject) else one


def _in_a_process(
    chosen: list[Subject | LeftOut], engine: str, timeout: float
) -> Iterator[Found | LeftOut]:
    # Threads of frameworks do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = pebble.ProcessPool(1, initializer=_begin, initargs=(engine,), context=context)
    try:
        futures = {
            one: pool.schedule(judged, (one, engine), timeout=timeout)
            for one in chosen
            if isinstance(one, Subject)
        }
        for one in chosen:
            yield one if isinstance(one, LeftOut) else _outcome(one, futures[one], timeout)
    finally:
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def _begin(engine: str) -> None:
    """Prepares a process: what is imported here is no part of a function's time."""
    backend_named(engine)


def _outcome(subject: Subject, future: Future[Found | LeftOut], timeout: float) -> Found | LeftOut:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, TimeoutError):
        return LeftOut(subject.label, f"it took more than {timeout:g} s", Why.LOST)
    if isinstance(error, pebble.ProcessExpired):
        return LeftOut(subject.label, "it ended its process", Why.LOST)
    return LeftOut(subject.label, f"it raised {type(error).__name__}: {error}", Why.RAISED)


# ---------------------------------------------------------------- the file

WIDTH = 88
IMPORTS = ("import adjudge", "import numpy as np")
TAKEN = ("adjudge", "adjudge_backend", "np", "pytest", "rng")


def text_of(target: str, engine: str, tests: Sequence[Found], left_out: Sequence[LeftOut]) -> str:
    """Returns the file: the same text for the same tests."""
    aliases = _aliases(sorted({one.subject.module for one in tests}))
    taken, bodies, imports = dict[str, str](), list[str](), {"import pytest"}
    for one in tests:
        body = _test(one, aliases[one.subject.module], taken)
        bodies.append(body)
        imports |= {line for line in IMPORTS if f"{line.split()[-1]}." in body}
        if before := _before(one):
            imports.add(f"import {before.partition('.')[0]}")
    for module, alias in aliases.items():
        package, _, last = module.rpartition(".")
        name = last if alias == last else f"{last} as {alias}"
        imports.add(f"from {package} import {name}" if package else f"import {module}")
    order = sorted(imports, key=lambda line: (line.startswith("from"), line.lower()))
    head = f'"""Derivatives of {target}, as `adjudge write` found inputs for them."""'
    mark = f'"adjudge_backend", ["{engine}"], indirect=True'
    parts = [
        head + "\n\n" + "\n".join(order),
        _call("pytestmark = pytest.mark.parametrize(", mark.split(", ", 1), ")", 0),
    ]
    text = "\n\n".join(parts) + "\n\n\n" + "\n\n\n".join(bodies) + "\n"
    if left_out:
        reasons = dict.fromkeys(one.reason for one in left_out)
        text += "\n\n# No test was written for these:\n#\n" + "".join(
            _comment(", ".join(one.name for one in left_out if one.reason == reason), reason)
            for reason in reasons
        )
    return text


def _aliases(modules: Iterable[str]) -> dict[str, str]:
    """Returns the name by which the file calls each module."""
    aliases: dict[str, str] = {}
    for module in modules:
        parts = module.split(".")
        name = parts[-1]
        for k in range(2, len(parts) + 1):
            if name in (*aliases.values(), *TAKEN):
                name = "_".join(parts[-k:])
        aliases[module] = name if name not in TAKEN else f"{name}_"
    return aliases


def _test(found: Found, alias: str, taken: dict[str, str]) -> str:
    """Returns the function that tests one function."""
    call = found.call
    names = [name + "_" * (name in (*TAKEN, alias, "f")) for name in found.names]
    specs = [str(one) for _, one in call.arrays]
    verb = "array" if len(names) == 1 else "arrays"
    lines = [f"def {_name(found, taken)}(adjudge_backend):"]
    if any(isinstance(one, Numbers) for _, one in call.arrays):
        lines.append("    rng = np.random.default_rng(0)")
    lines.append(_call(f"    {', '.join(names)} = adjudge_backend.{verb}(", specs, ")", 4))
    function, more = _function(found, alias, names)
    options = []
    if found.wrt and len(names) > 1:
        options.append(f"wrt={found.wrt[0] if len(found.wrt) == 1 else found.wrt}")
    if found.convention == TANGENTS:
        options += ["check_forward_ad=True", "check_backward_ad=False"]
    check = _call("    adjudge_backend.check(", [function, *names, *options], ")", 4)
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*lines, *more, check]))


def _name(found: Found, taken: dict[str, str]) -> str:
    own, module = _snake(found.subject.label), found.subject.module
    name = f"test_{own}"
    if taken.get(name, module) != module:
        name = f"test_{_snake(module.rpartition('.')[2])}_{own}"
    if name in taken:  # a class and a function whose names differ by capitals alone
        name += "_class" if found.subject.kind == "class" else "_function"
    while name in taken:
        name += "_"
    taken[name] = module
    return name


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace(".", "_").strip("_")


def _before(found: Found) -> str:
    """Returns what stands before the constructor of a class."""
    if found.subject.kind != "class":
        return ""
    return function_class(found.subject.find()).before


def _function(found: Found, alias: str, names: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the code of the function to check, and the lines before it."""
    path, lines = f"{alias}.{found.subject.name}", list[str]()
    if found.subject.derivative:
        return "f", _by_hand(found, path, f"{alias}.{found.subject.derivative}", names)
    if found.subject.kind == "class":
        kind = function_class(found.subject.find())
        if found.call.constructor is None:
            path += kind.suffix
        else:
            own = _snake(found.subject.name)
            own += "_" * (own in (*names, *TAKEN, alias))
            given = _arguments(found.call.constructor, ())
            lines += [f"    {kind.before}"] if kind.before else []
            lines.append(_call(f"    {own} = {path}(", given, f"){kind.suffix}", 4))
            path = own
    method = found.subject.find() if found.subject.kind == "method" else None
    if found.call.only_arrays and (method is None or method.bound):
        return path, lines
    before, given, after = f"{path}(", _arguments(found.call, names), ")"
    if method is not None and not method.bound:
        before, given, after = _of_object(found.call, method, alias, given)
    code = f"lambda {', '.join(names)}: {before}{', '.join(given)}{after}"
    if len(f"    adjudge_backend.check({code}, {', '.join(names)})") <= WIDTH:
        return code, lines
    return "f", [*lines, *_define("f", names, _call(f"return {before}", given, after, 8))]


def _of_object(
    call: Call, method: Method, alias: str, given: list[str]
) -> tuple[str, list[str], str]:
    """Returns what stands before the last arguments of a method, these, and what stands behind."""
    split = len(call.positional)
    named = dict(zip([key for key, _ in call.keyword], given[split:], strict=True))
    args, kwargs, own, more = method.split(given[:split], named)
    first, second = [*args, *kwargs.values()], [*own, *more.values()]
    path = f"{alias}.{method.kind.__name__}("
    if method.value or not second:
        return path, first, f").{method.name}{'' if method.value else '()'}"
    return f"{path}{', '.join(first)}).{method.name}(", second, ")"


def _define(name: str, names: Sequence[str], *body: str) -> list[str]:
    """Returns the lines that define a function of `names` within a test."""
    return ["", f"    def {name}({', '.join(names)}):", *(f"        {one}" for one in body), ""]


def _by_hand(found: Found, function: str, derivative: str, names: Sequence[str]) -> list[str]:
    """Returns the lines that make a `ByHand` of a function and its derivative."""
    convention, word = CONVENTIONS[found.convention], "vjp"
    rest = [next(name for name in ("w", "g", "cotangent") if name not in names)]
    if found.convention == TANGENTS:
        word, rest = "jvp", [f"d{name}" for name in names]
    given = _arguments(Call(found.call.positional), names)
    named = _arguments(Call(keyword=found.call.keyword), ())
    lines, forward, rule = list[str](), function, derivative
    if convention.cached or not found.call.only_arrays:
        forward = "forward"
        end = ")[0]" if convention.cached else ")"
        lines += _define(forward, names, _call(f"return {function}(", [*given, *named], end, 8))
    if not (found.call.only_arrays and found.convention in (TANGENTS, "cotangent last")):
        rule = word
        parts = {"b": derivative, "x": ", ".join(given), "v": ", ".join(rest)}
        parts["k"] = "".join(f", {one}" for one in named)
        code = re.sub(r"\bw\b", rest[0], convention.code).format(y="y", **parts)
        body = []
        if "{y}" in convention.code:
            body.append(_call(f"y = {function}(", [*given, *named], ")", 8))
        if found.wrt and len(names) > 1:  # None: the others are not differentiated
            items = [code if k in found.wrt else "None" for k in range(len(names))]
            rows = "".join(f"            {one},\n" for one in items)
            one_line = f"return {', '.join(items)}"
            fits = len(one_line) + 8 <= WIDTH
            body.append(one_line if fits else f"return (\n{rows}        )")
        else:
            body.append(f"return {code}")
        lines += _define(rule, [*names, *rest], *body)
    return [*lines, _call("    f = adjudge.ByHand(", [forward, f"{word}={rule}"], ")", 4)]


def _arguments(call: Call, names: Sequence[str]) -> list[str]:
    given = iter(names)

    def code(one: object) -> str:
        return str(one) if isinstance(one, Constant) else next(given)

    positional = [code(one) for _, one in call.positional]
    return [*positional, *(f"{key}={code(one)}" for key, one in call.keyword)]


def _call(before: str, items: Sequence[str], after: str, indent: int) -> str:
    """Returns a call on one line if it fits; else its arguments on one line, or on one each."""
    one_line = before + ", ".join(items) + after
    start = 0 if before.startswith(" ") else indent
    if start + len(one_line) <= WIDTH:
        return one_line
    pad = " " * (indent + 4)
    inner = pad + ", ".join(items)
    if len(inner) <= WIDTH:
        return f"{before}\n{inner}\n{' ' * indent}{after}"
    rows = "".join(f"{pad}{item},\n" for item in items)
    return f"{before}\n{rows}{' ' * indent}{after}"


def _comment(names: str, reason: str) -> str:
    line = f"{names}: {textwrap.shorten(reason, 200, placeholder=' …')}"
    wrapped = textwrap.wrap(line, WIDTH - 4, break_on_hyphens=False)
    return "# - " + "\n#   ".join(wrapped) + "\n"
