"""This module writes a script that repeats a check: its arrays bit by bit, its options, and the
import of its function.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adjudge._version import __version__
from adjudge.engine import (
    Array,
    AutodiffBackend,
    ByHand,
    HostArray,
    backend_named,
    backend_of,
    names,
)
from adjudge.errors import BackendError, InputError
from adjudge.problem import read_arguments

NARROW = ("float16", "float32", "complex64")
"""NumPy's own dtypes that are narrower than double."""
EXACT = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
"""The dtypes whose numbers are not rounded."""


def reproduction(
    f: Callable[..., Any],
    inputs: Any,
    *,
    backend: str | AutodiffBackend | None = None,
    seed: int = 0,
    **options: Any,
) -> str:
    """Returns a script that runs `examine(f, inputs, backend=..., seed=..., **options)` elsewhere.

    Every number is written as an exact hexadecimal float, and placed on its engine in the dtype and
    on the device that it had. `f`, and callables among the options, are imported where a module
    has them by name. Where no module has one, a comment says what to put there.

    Args:
        f, inputs, options: These are as for `examine`.
        backend: The engine on which NumPy arrays among the inputs are placed.
        seed: The seed of the probes. A report ends with the seed that it had.
    """
    script = Script(backend_named(backend) if isinstance(backend, str) else backend)
    function = script.named(f, "f")
    given = _positional(script, inputs)
    wanted = _wanted(inputs, options) if script.home is None and script.engines else []
    options = {**({"wrt": wanted} if wanted else {}), **options, "seed": seed}
    if script.home is not None:
        script.engine(script.home)
        options["backend"] = script.home
    call = ", ".join(f"{name}={script.literal(value)}" for name, value in options.items())
    return "\n".join(
        [
            f"# adjudge {__version__}, {', '.join(script.versions())}",
            *sorted(script.imports - set(script.own)),
            *script.own,
            "",
            "h = float.fromhex",
            *script.setup,
            *([] if function == "f" else [f"f = {function}"]),
            f"inputs = {given}",
            f"report = adjudge.examine(f, inputs, {call})",
            "print(report)",
            "",
        ]
    )


@dataclass
class Script:
    """The imports and the setup that a script needs, collected while its code is written."""

    home: AutodiffBackend | None
    """The engine on which NumPy arrays are placed. With `None` they stay NumPy arrays."""
    imports: set[str] = field(default_factory=lambda: {"import adjudge", "import numpy as np"})
    own: list[str] = field(default_factory=list)
    """Imports from the modules of the user."""
    setup: list[str] = field(default_factory=list)
    engines: dict[str, AutodiffBackend] = field(default_factory=dict)
    """The engines by the name of the variable that holds each."""

    def versions(self) -> list[str]:
        """Returns the names and versions of NumPy and of the engines that the script uses."""
        return [f"numpy {np.__version__}"] + [
            f"{one.name} {one.environment.version}"
            for one in self.engines.values()
            if one.name != "numpy"
        ]

    def literal(self, value: Any) -> str:
        """Returns the code of `value`, or a name to be filled in where it has none."""
        if isinstance(value, AutodiffBackend):
            return self.engine(value)
        if isinstance(value, np.ndarray | np.generic):
            return self.host(value)
        if isinstance(value, Mapping):
            pairs = ((self.literal(key), self.literal(node)) for key, node in value.items())
            return "{" + ", ".join(f"{key}: {node}" for key, node in pairs) + "}"
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fields = (self.literal(node) for node in value)
            return f"{self.named(type(value), type(value).__name__)}({', '.join(fields)})"
        if isinstance(value, list):
            return f"[{', '.join(self.literal(node) for node in value)}]"
        if isinstance(value, tuple):
            nodes = [self.literal(node) for node in value]
            return f"({', '.join(nodes)}{',' * (len(nodes) == 1)})"
        if isinstance(value, bool | int | str | bytes | None):
            return repr(value)
        if isinstance(value, float | complex):
            return _number(value)
        owner = _owner(value)
        if owner is not None:
            return self.array(owner, value)
        return self.named(value, getattr(value, "__name__", type(value).__name__))

    def host(self, value: Any) -> str:
        """Returns the code of a NumPy array or scalar, placed on the engine `home` if there is
        one.
        """
        if self.home is None or self.home.owns(value) or isinstance(value, np.generic):
            if value.dtype.name not in np.sctypeDict:  # NumPy itself has no bfloat16, for example.
                self.imports.add("import ml_dtypes")
            return _host_array(np.asarray(value)) + "[()]" * isinstance(value, np.generic)
        if value.dtype.name in np.sctypeDict:
            return self.placed(self.home, np.asarray(value))
        wide = np.asarray(value).astype(np.float32)
        return self.placed(self.home, wide, value.dtype.name)

    def array(self, owner: AutodiffBackend, value: Array) -> str:
        """Returns the code of an engine's array, from its exact values on the host."""
        info = owner.arrays.info(value)
        if "sparse" in info.layout:
            return self.named(value, f"sparse_{len(self.setup)}")
        dtype = info.dtype.rpartition(".")[2]
        if not owner.arrays.is_differentiable(value):
            values = np.asarray(value.tolist(), dtype if dtype in EXACT else None)
        else:
            with owner.environment.isolation([value]):
                values = owner.arrays.to_host(value)
            values = values.astype(dtype) if dtype in NARROW else values
        usual = owner.arrays.info(owner.arrays.make(np.zeros(()), "float32")).device
        return self.placed(owner, values, dtype, None if info.device == usual else info.device)

    def placed(
        self,
        owner: AutodiffBackend,
        values: HostArray,
        dtype: str | None = None,
        device: str | None = None,
    ) -> str:
        """Returns the code that places host values on an engine."""
        self.imports.add("from adjudge.engine import placed")
        more = [repr(dtype)] if dtype not in (None, values.dtype.name) else []
        more += [f"device={device!r}"] if device else []
        return f"placed({', '.join([self.engine(owner), _host_array(values), *more])})"

    def engine(self, backend: AutodiffBackend) -> str:
        """Returns the variable that holds `backend`, which is set up at first use."""
        for variable, one in self.engines.items():
            if one is backend:
                return variable
        variable = "engine" + (str(len(self.engines) + 1) if self.engines else "")
        self.engines[variable] = backend
        if backend.name in names() and type(backend_named(backend.name)) is type(backend):
            self.imports.add("from adjudge.engine import backend_named")
            made = f'backend_named("{backend.name}")'
        else:
            kind = self.named(type(backend), f"backend_{variable}")
            made = f"{kind}()" if kind != f"backend_{variable}" else kind
        self.setup.append(f"{variable} = {made}")
        return variable

    def named(self, thing: Any, name: str) -> str:
        """Returns the name by which the script has `thing`, imported or left to be filled in."""
        found = _found(thing)
        if found is not None:
            module, path = found
            top = path.partition(".")[0]
            clash = top in ("adjudge", "np", "h", "inputs", "report", "f") and path != name
            alias = f"its_{top}" if clash else top
            line = f"from {module} import {top}" + (f" as {alias}" if clash else "")
            file = getattr(sys.modules.get(module), "__file__", None)
            comment = f"  # {file}" if file and "site-packages" not in file else ""
            if line + comment not in self.own:
                self.own.append(line + comment)
            return alias + path[len(top) :]
        name = re.sub(r"\W", "_", name)
        missing = f"{name} = ...  # put here {_whereabouts(thing)}"
        if missing not in self.setup:
            self.setup.append(missing)
        return name


def _positional(script: Script, inputs: Any) -> str:
    """Returns the code of the inputs, with one argument a line."""
    if not isinstance(inputs, tuple | list) or hasattr(inputs, "_fields"):
        return script.literal(inputs)
    ends = "()" if isinstance(inputs, tuple) else "[]"
    lines = [f"    {script.literal(one)},".replace("\n", "\n    ") for one in inputs]
    return "\n".join([ends[0], *lines, ends[1]]) if lines else ends


def _wanted(inputs: Any, options: Mapping[str, Any]) -> list[str]:
    """Returns the paths of the checked inputs where marks on the arrays choose them, since the
    arrays of a script have no marks. Returns an empty list where none do.
    """
    if options.get("wrt") is not None:
        return []
    try:
        arguments = read_arguments(inputs, options.get("kwargs"))
    except (BackendError, InputError):
        return []  # The check itself raises this again.
    marks = [arguments.backend.requires_grad(leaf) for leaf in arguments.leaves]
    return list(arguments.names) if any(marks) else []


def _owner(value: Any) -> AutodiffBackend | None:
    try:
        return backend_of(value, "inputs")
    except BackendError:
        return None


# ---------------------------------------------------------------- numbers


def _host_array(values: HostArray) -> str:
    """Returns the code of an array on the host, which makes it the same bit by bit."""
    dtype = values.dtype.name
    flat = np.ascontiguousarray(values).reshape(-1)
    shaped = "" if values.ndim == 1 and values.size else f".reshape({values.shape})"
    bits = f"uint{8 * values.dtype.itemsize}"
    if _unusual(flat):
        parts = flat.view(bits if bits in EXACT else "uint64")
        entries, made = [hex(int(one)) for one in parts], parts.dtype.name
        shaped = f".view({dtype!r})" + shaped
    else:
        exact = values.dtype.kind in "biu"
        numbers = flat.tolist() if exact or dtype in np.sctypeDict else flat.astype(float).tolist()
        entries, made = [repr(one) if exact else _number(one) for one in numbers], dtype
    body = ", ".join(entries)
    if len(body) > 60:
        body = "\n" + textwrap.indent(textwrap.fill(body, 92, break_long_words=False), "    ")
        body += "\n"
    return f"np.array([{body}], {made!r}){shaped}"


def _unusual(flat: HostArray) -> bool:
    """Says whether there are NaNs with a sign or a payload, which the text `nan` would lose."""
    if flat.dtype.name not in (*NARROW, "float64", "complex128"):
        return False
    parts = flat.view(flat.real.dtype)
    odd = parts[np.isnan(parts)]
    return bool(odd.tobytes() != np.full(odd.shape, np.nan, odd.dtype).tobytes())


def _number(value: float | complex) -> str:
    if isinstance(value, complex):
        return f"complex({_number(value.real)}, {_number(value.imag)})"
    return f'h("{re.sub(r"[.]?0*p", "p", value.hex()) if np.isfinite(value) else value}")'


# ---------------------------------------------------------------- names


def _found(thing: Any) -> tuple[str, str] | None:
    """Returns the module and the path in it by which `thing` can be imported, or `None` where
    there is none.
    """
    owner = getattr(thing, "__self__", None)
    parts = list(thing.given.values()) if isinstance(thing, ByHand) else []
    homes = [
        name
        for one in (thing, owner, *parts)
        if isinstance(name := getattr(one, "__module__", None), str) and name != "__main__"
    ]
    for module in homes:
        space = sys.modules.get(module)
        if space is None:
            continue
        paths = [str(getattr(thing, "__qualname__", ""))]
        # An inherited class method is found by the class it is called on: Sign.apply, not
        # Function.apply.
        if isinstance(owner, type):
            paths.insert(0, f"{owner.__qualname__}.{getattr(thing, '__name__', '')}")
        paths += [name for name, value in vars(space).items() if value is thing]
        for path in paths:
            if path and "<" not in path and _same(_at(space, path), thing):
                return module, path
    return None


def _at(space: object, path: str) -> Any:
    for name in path.split("."):
        space = getattr(space, name, None)
    return space


def _same(one: Any, other: Any) -> bool:
    """Says whether both are one object. Bound methods count as one if they have the same owner,
    since they are made anew at each access.
    """
    if one is other:
        return True
    bound = getattr(other, "__self__", None)
    return bound is not None and getattr(one, "__self__", None) is bound


def _whereabouts(thing: Any) -> str:
    """Returns a description of a thing that no module has by name, and the place where it was
    made.
    """
    rules = list(thing.given.values()) if isinstance(thing, ByHand) else []
    function = next((rule for rule in rules if hasattr(rule, "__code__")), thing)
    name = getattr(function, "__qualname__", None) or repr(type(thing))
    if function is not thing:
        name = f"{thing!r} of {name}"
    code = getattr(function, "__code__", None)
    place = f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
    module = getattr(function, "__module__", None)
    return f"{module}.{name}{place}" if module else f"{name}{place}"
