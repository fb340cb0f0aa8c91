"""What the kit asks of a backend about arrays: values, dtypes and devices are what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from adjudge.conformance.closed_forms import Host
from adjudge.conformance.faults import write
from adjudge.conformance.subject import EPS, ConformanceError, Subject, bare
from adjudge.engine import Array, AutodiffBackend
from adjudge.errors import NotSupportedError

LIMITS = {
    "float64": (2.0**-1022, (2 - 2.0**-52) * 2.0**1023, 2.0**-1074),
    "float32": (2.0**-126, (2 - 2.0**-23) * 2.0**127, 2.0**-149),
    "float16": (2.0**-14, (2 - 2.0**-10) * 2.0**15, 2.0**-24),
    "bfloat16": (2.0**-126, (2 - 2.0**-7) * 2.0**127, 2.0**-133),
}
"""Of every real dtype the smallest normal number, the largest one, the smallest subnormal one."""


def real_part(dtype: str) -> str:
    """The dtype of the parts of complex numbers; that of real ones is their own."""
    return {"complex128": "float64", "complex64": "float32"}.get(dtype, dtype)


def values(dtype: str) -> Host:
    """Numbers that a dtype holds exactly, and that conversions like to lose."""
    eps, (tiny, most, _) = EPS[dtype], LIMITS[real_part(dtype)]
    reals = np.array([-0.0, 1.0, 1 + eps, -1.5, tiny, -most, np.inf, -np.inf, np.nan, 0.0, 2 - eps])
    if not dtype.startswith("complex"):
        return reals
    host = np.empty(reals.shape, np.complex128)
    host.real, host.imag = reals, reals[::-1]
    return host


def arrangements(host: Host) -> Iterator[tuple[str, Host]]:
    """The same kind of numbers in other shapes, and in memory that is not contiguous."""
    square = np.resize(host, (3, 4))
    yield "a vector", host
    yield "no dimensions", host[2:3].reshape(())
    yield "an empty array", np.zeros((0, 3), host.dtype)
    yield "a strided view", host[::2]
    yield "a reversed view", host[::-1]
    yield "a transposed matrix", square.T
    read_only = host.copy()
    read_only.flags.writeable = False
    yield "a read-only array", read_only


def rounded(host: Host, dtype: str) -> Host:
    """As NumPy has it before `make`: bfloat16 stays float64."""
    return host if dtype == "bfloat16" else host.astype(dtype)


def places(subject: Subject, dtype: str) -> list[str | None]:
    """The default device, and every device that holds the dtype."""
    found: list[str | None] = [None]
    for device in subject.backend.devices() if len(subject.backend.devices()) > 1 else ():
        if _holds(subject.backend, dtype, device):
            found.append(device)
    return found


def _holds(backend: AutodiffBackend, dtype: str, device: str) -> bool:
    """Whether arrays of this dtype can be on that device."""
    try:
        backend.make(np.zeros(1), dtype, device)
    except NotSupportedError:
        return False
    return True


def on_every_device(
    check: Callable[[Subject, str, str | None], None],
) -> Callable[[Subject, str], None]:
    """`check` on the default device and on every one that holds the dtype."""

    def everywhere(subject: Subject, dtype: str) -> None:
        for device in places(subject, dtype):
            with subject.backend.isolation([subject.backend.make(np.zeros(1), dtype, device)]):
                check(subject, dtype, device)

    return everywhere


def _at(operation: str, dtype: str, device: str | None) -> str:
    return f"{operation} ({dtype}, {device or 'default device'})"


@on_every_device
def round_trip(subject: Subject, dtype: str, device: str | None) -> None:
    """Values come back bit by bit, with their shape, dtype and device."""
    backend = subject.backend
    like = backend.make(np.zeros(2), dtype, device)
    for name, host in arrangements(values(dtype)):
        made = backend.make(rounded(host, dtype), dtype, device)
        _same_array(subject, _at(f"make of {name}", dtype, device), made, host, like)
        again = backend.from_host(host, made)
        _same_array(subject, _at(f"from_host of {name}", dtype, device), again, host, like)
    tiniest = LIMITS[real_part(dtype)][2]
    back = backend.to_host(backend.from_host(np.array([tiniest], _wide(dtype)), like))
    if back[0] not in (tiniest, 0):
        raise ConformanceError(
            f"{_at('the round trip of the smallest subnormal number', dtype, device)} is "
            f"{back[0]!r}, expected {tiniest!r}, or zero",
            "to_host must give the exact values in float64",
        )
    third = backend.to_host(backend.from_host(np.array([1 / 3], _wide(dtype)), like))
    error = abs(float(np.real(third[0])) - 1 / 3)
    subject.comparisons += 2
    if not error <= EPS[dtype] / 8:
        raise ConformanceError(
            f"{_at('from_host of 1/3', dtype, device)} is off by {error:.3g}, expected at most "
            f"{EPS[dtype] / 8:.3g}",
            "from_host must round to the dtype of like once, to nearest, and to no narrower one",
        )


def _wide(dtype: str) -> str:
    return "complex128" if dtype.startswith("complex") else "float64"


def _same_array(subject: Subject, where: str, array: Array, host: Host, like: Array) -> None:
    info, wanted = subject.backend.info(array), subject.backend.info(like)
    subject.equal(f"{where}: the shape", info.shape, host.shape, "info().shape is a tuple of int")
    subject.equal(
        f"{where}: the dtype", info.dtype, wanted.dtype, "keep the dtype that was asked for"
    )
    subject.equal(
        f"{where}: the device", info.device, wanted.device, "keep the device that was asked for"
    )
    back = subject.backend.to_host(array)
    subject.equal(
        f"{where}: the dtype of to_host", back.dtype.name, _wide(str(host.dtype)),
        "to_host gives float64, or complex128 where the array is complex",
    )  # fmt: skip
    subject.same(where, back, host, "to_host and from_host must keep the bits of every value")


@on_every_device
def separate(subject: Subject, dtype: str, device: str | None) -> None:
    """Copies share no memory with what they were made from."""
    backend = subject.backend
    host = np.resize(np.array([0.5, -1.5, 2.0, 3.0], _wide(dtype)), (2, 2))
    made: dict[str, Callable[[Array], Array]] = {
        "copy": backend.copy,
        "from_host of to_host": lambda array: backend.from_host(backend.to_host(array), array),
    }
    for name, into in made.items():
        array = backend.make(rounded(host, dtype), dtype, device)
        other = into(array)
        remedy = f"the result of {name} may share no memory with what it was made from"
        subject.same(_at(name, dtype, device), backend.to_host(other), host, "keep the values")
        write(array)
        subject.same(
            _at(f"{name}, after a write to the first", dtype, device),
            backend.to_host(other), host, remedy,
        )  # fmt: skip
    for name in ("make", "from_host"):
        given = rounded(host, dtype).copy() if name == "make" else host.copy()
        like = backend.make(rounded(host, dtype), dtype, device)
        array = (
            backend.make(given, dtype, device) if name == "make" else backend.from_host(given, like)
        )
        given[...] = 7
        subject.same(
            _at(f"{name}, after a write to the host array", dtype, device),
            backend.to_host(array), host, f"{name} must copy the host array",
        )  # fmt: skip
        seen = backend.to_host(array)
        if seen.flags.writeable:
            seen[...] = 7
        subject.same(
            _at("an array after a write to what to_host gave", dtype, device),
            backend.to_host(array), host, "to_host must copy",
        )  # fmt: skip


@on_every_device
def described(subject: Subject, dtype: str, device: str | None) -> None:
    """What is said about arrays of a dtype is so."""
    backend = subject.backend
    host = np.resize(np.array([0.5, -1.5, 2.0, 3.0], _wide(dtype)), (2, 3))
    array = backend.make(rounded(host, dtype), dtype, device)
    info = backend.info(array)

    def say(what: str, found: object, expected: object) -> None:
        subject.equal(_at(what, dtype, device), found, expected, "say what is so")

    say("info().dtype", bare(info.dtype), dtype)
    say("info().shape", info.shape, (2, 3))
    say("info().device is text", isinstance(info.device, str), True)
    say("owns(array)", backend.owns(array), True)
    say("differentiable(array)", backend.differentiable(array), True)
    say("complex(array)", backend.complex(array), dtype.startswith("complex"))
    say("eps(array)", backend.eps(array), EPS[dtype])
    say("effective_eps(array) >= eps", backend.effective_eps(array) >= EPS[dtype], True)
    say("carried_eps of x*x", backend.carried_eps(lambda x: (x[0] * x[0],), (array,)) in
        (0.0, EPS[dtype]), True)  # fmt: skip
    say("expand(array)", backend.expand(array), None)
    stacked = backend.stack([array, array])
    say("the shape of stack", backend.info(stacked).shape, (2, 2, 3))
    say("the dtype of stack", bare(backend.info(stacked).dtype), dtype)
    say("the device of stack", backend.info(stacked).device, info.device)
    subject.same(_at("stack", dtype, device), backend.to_host(stacked), np.stack([host, host]),
                 "stack keeps the values")  # fmt: skip
    strided = backend.strided(array)
    say("info of strided", backend.info(strided), info)
    subject.same(_at("strided", dtype, device), backend.to_host(strided), host,
                 "strided keeps the values")  # fmt: skip
    if _widens(subject, array):
        with backend.widening():
            wide = backend.widen(array)
            say("the dtype of widen", bare(backend.info(wide).dtype), _wide(dtype))
            say("the device of widen", backend.info(wide).device, info.device)
            subject.same(_at("widen", dtype, device), backend.to_host(wide), host,
                         "widen keeps the values")  # fmt: skip


def _widens(subject: Subject, array: Array) -> bool:
    """Whether the device of `array` holds double precision at all."""
    backend = subject.backend
    device = backend.info(array).device
    doubles = [
        backend.info(backend.make(np.zeros(1), "float64", name)).device
        for name in places(subject, "float64")
        if "float64" in subject.dtypes
    ]
    return device in doubles


def refusals(subject: Subject) -> None:
    """What the engine has not got is refused as not supported, and by no other error."""
    backend = subject.backend
    one, dtype = np.zeros(2), subject.dtypes[0]
    _refused(subject, "make of dtype 'float12'", lambda: backend.make(one, "float12"))
    _refused(subject, "make on device 'nowhere'", lambda: backend.make(one, dtype, "nowhere"))


def _refused(subject: Subject, what: str, attempt: Callable[[], object]) -> None:
    remedy = "raise self.lacks(...), which is a NotSupportedError"
    subject.comparisons += 1
    try:
        result = attempt()
    except NotSupportedError:
        return
    except Exception as error:
        raise ConformanceError(f"{what} raises {type(error).__name__}: {error}", remedy) from error
    raise ConformanceError(f"{what} returns a {type(result).__name__}", remedy)


def names(subject: Subject) -> None:
    """What the engine is called, and what it says that it has."""
    backend = subject.backend
    for what in ("name", "way", "version", "compiled"):
        found = getattr(backend, what)
        subject.equal(f"{what} is text", isinstance(found, str) and found != "", True, "a word")
    subject.equal("absent()", backend.absent(), None, "say why, or return None")
    for what, listed in (("dtypes()", backend.dtypes()), ("devices()", backend.devices())):
        fine = listed != [] and [str(name) for name in listed] == listed
        subject.equal(
            f"{what} lists names, each once", fine and len(set(listed)) == len(listed), True,
            "a list of str",
        )  # fmt: skip
    unknown = [name for name in subject.dtypes if name not in EPS]
    subject.equal("dtypes() that are no floating dtypes", unknown, [], "name dtypes as NumPy does")
    for leaf in (None, 1.0, 1j, "array", [backend.make(np.zeros(1), subject.dtypes[0])], object()):
        subject.equal(
            f"owns({type(leaf).__name__})", backend.owns(leaf), False, "own arrays, nothing else"
        )
    subject.equal(
        "masked(None) makes another engine", backend.masked(None).name, backend.name,
        "return the engine itself, or one like it",
    )  # fmt: skip


def integers(subject: Subject) -> None:
    """Integers and booleans are arrays without derivatives."""
    backend: AutodiffBackend = subject.backend
    for host in (np.array([3, 0, -1]), np.array([True, False])):
        dtype = host.dtype.name
        array = backend.make(host, dtype)
        for what, found, expected in (
            ("info().dtype", bare(backend.info(array).dtype), dtype),
            ("owns", backend.owns(array), True),
            ("differentiable", backend.differentiable(array), False),
            ("complex", backend.complex(array), False),
            ("to_host", backend.to_host(array).tolist(), host.tolist()),
            ("to_host(copy)", backend.to_host(backend.copy(array)).tolist(), host.tolist()),
        ):
            subject.equal(f"{what} of {dtype} values", found, expected, "say what is so")


def devices(subject: Subject) -> None:
    """Devices are told apart, and `place` moves a copy."""
    backend = subject.backend
    for device in backend.devices():
        holds = [d for d in subject.dtypes if _holds(backend, d, device)]
        if not holds:
            raise ConformanceError(
                f"device {device} of devices() holds none of {', '.join(subject.dtypes)}",
                "name devices on which make() can make an array",
            )
        found = backend.info(backend.make(np.ones(2), holds[0], device)).device
        subject.equal(
            f"info().device of an array made on {device!r}", found, device,
            "info().device must be the name that devices() has for it: ask the array",
        )  # fmt: skip
        if len(backend.devices()) == 1:
            continue
        moved = backend.place(backend.make(np.ones(2), holds[0]), device)
        subject.equal(
            f"the device of place(array, {device!r})", backend.info(moved).device, found,
            "place must return a copy on that device",
        )  # fmt: skip
        subject.same(
            f"place(array, {device!r})", backend.to_host(moved), np.ones(2), "keep the values"
        )
