"""This module writes the tests as a file of pytest, formatted as `ruff format` would."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from adjudge.ghostwriter.conventions import CONVENTIONS, TANGENTS
from adjudge.ghostwriter.inputs import Call, Constant, Numbers
from adjudge.ghostwriter.subjects import LeftOut, Method, function_class
from adjudge.ghostwriter.trial import Found

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
