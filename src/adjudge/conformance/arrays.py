"""What the kit asks of a backend's arrays: values, dtypes and devices survive every operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

import numpy as np

from adjudge.conformance.closed_forms import ClosedForms, Host
from adjudge.conformance.faults import write
from adjudge.conformance.scenario import Scenario
from adjudge.conformance.subject import EPS, LIMITS, ConformanceError, Subject, bare
from adjudge.engine import Array, ArrayOperations
from adjudge.errors import NotSupportedError


def real_part(dtype: str) -> str:
    """Returns the dtype of the real part: that of complex numbers, or the dtype itself."""
    return {"complex128": "float64", "complex64": "float32"}.get(dtype, dtype)


def values(dtype: str) -> Host:
    """Returns numbers that the dtype holds exactly, and that a careless conversion changes."""
    eps, (tiny, most, _) = EPS[dtype], LIMITS[real_part(dtype)]
    reals = np.array([-0.0, 1.0, 1 + eps, -1.5, tiny, -most, np.inf, -np.inf, np.nan, 0.0, 2 - eps])
    if not dtype.startswith("complex"):
        return reals
    host = np.empty(reals.shape, np.complex128)
    host.real, host.imag = reals, reals[::-1]
    return host


def arrangements(host: Host) -> Iterator[tuple[str, Host]]:
    """Returns the same kind of numbers in other shapes, and in memory that is not contiguous."""
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
    """Returns `host` as NumPy holds it before `make`: rounded to its dtype, and bfloat16 as
    float64.
    """
    return host if dtype == "bfloat16" else host.astype(dtype)


def places(subject: Subject, dtype: str) -> list[str | None]:
    """Returns the default device, and every device that holds the dtype."""
    found: list[str | None] = [None]
    devices = subject.arrays.devices()
    if len(devices) > 1:
        found += [device for device in devices if _holds(subject.arrays, dtype, device)]
    return found


def _holds(arrays: ArrayOperations, dtype: str, device: str) -> bool:
    """Returns whether arrays of this dtype can be on that device."""
    try:
        arrays.make(np.zeros(1), dtype, device)
    except NotSupportedError:
        return False
    return True


def on_every_device(
    check: Callable[[Subject, str, str | None], None],
) -> Callable[[Subject, str], None]:
    """Returns a check that runs `check` on the default device and on every one that holds the
    dtype.
    """

    def everywhere(subject: Subject, dtype: str) -> None:
        for device in places(subject, dtype):
            array = subject.arrays.make(np.zeros(1), dtype, device)
            with subject.backend.environment.isolation([array]):
                check(subject, dtype, device)

    return everywhere


def _at(operation: str, dtype: str, device: str | None) -> str:
    return f"{operation} ({dtype}, {device or 'default device'})"


@on_every_device
def round_trip(subject: Subject, dtype: str, device: str | None) -> None:
    """Checks that values come back bit by bit, with their shape, dtype and device."""
    arrays = subject.arrays
    like = arrays.make(np.zeros(2), dtype, device)
    for name, host in arrangements(values(dtype)):
        made = arrays.make(rounded(host, dtype), dtype, device)
        _same_array(subject, _at(f"make of {name}", dtype, device), made, host, like)
        again = arrays.from_host(host, made)
        _same_array(subject, _at(f"from_host of {name}", dtype, device), again, host, like)
    tiniest = LIMITS[real_part(dtype)][2]
    back = arrays.to_host(arrays.from_host(np.array([tiniest], _wide(dtype)), like))
    if back[0] not in (tiniest, 0):
        raise ConformanceError(
            f"{_at('the round trip of the smallest subnormal number', dtype, device)} is "
            f"{back[0]!r}, expected {tiniest!r}, or zero",
            "to_host must give the exact values in float64",
        )
    third = arrays.to_host(arrays.from_host(np.array([1 / 3], _wide(dtype)), like))
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
    info, wanted = subject.arrays.info(array), subject.arrays.info(like)
    subject.equal(f"{where}: the shape", info.shape, host.shape, "info().shape is a tuple of int")
    subject.equal(
        f"{where}: the dtype", info.dtype, wanted.dtype, "keep the dtype that was asked for"
    )
    subject.equal(
        f"{where}: the device", info.device, wanted.device, "keep the device that was asked for"
    )
    back = subject.arrays.to_host(array)
    subject.equal(
        f"{where}: the dtype of to_host", back.dtype.name, _wide(str(host.dtype)),
        "to_host gives float64, or complex128 where the array is complex",
    )  # fmt: skip
    subject.same(where, back, host, "to_host and from_host must keep the bits of every value")


@on_every_device
def separate(subject: Subject, dtype: str, device: str | None) -> None:
    """Checks that copies share no memory with what they were made from."""
    arrays = subject.arrays
    host = np.resize(np.array([0.5, -1.5, 2.0, 3.0], _wide(dtype)), (2, 2))
    made: dict[str, Callable[[Array], Array]] = {
        "copy": arrays.copy,
        "copies": lambda array: arrays.copies((array,))[0],
        "from_host of to_host": lambda array: arrays.from_host(arrays.to_host(array), array),
    }
    for name, into in made.items():
        array = arrays.make(rounded(host, dtype), dtype, device)
        other = into(array)
        remedy = f"the result of {name} may share no memory with what it was made from"
        subject.same(_at(name, dtype, device), arrays.to_host(other), host, "keep the values")
        write(subject.arrays, array)
        subject.same(
            _at(f"{name}, after a write to the first", dtype, device),
            arrays.to_host(other), host, remedy,
        )  # fmt: skip
    for name in ("make", "from_host"):
        given = rounded(host, dtype).copy() if name == "make" else host.copy()
        like = arrays.make(rounded(host, dtype), dtype, device)
        array = (
            arrays.make(given, dtype, device) if name == "make" else arrays.from_host(given, like)
        )
        given[...] = 7
        subject.same(
            _at(f"{name}, after a write to the host array", dtype, device),
            arrays.to_host(array), host, f"{name} must copy the host array",
        )  # fmt: skip
        seen = arrays.to_host(array)
        if seen.flags.writeable:
            seen[...] = 7
        subject.same(
            _at("an array after a write to what to_host gave", dtype, device),
            arrays.to_host(array), host, "to_host must copy",
        )  # fmt: skip


@on_every_device
def described(subject: Subject, dtype: str, device: str | None) -> None:
    """Checks that `info`, `eps`, `stack` and the like tell the truth about arrays of a dtype."""
    arrays, environment = subject.arrays, subject.backend.environment
    host = np.resize(np.array([0.5, -1.5, 2.0, 3.0], _wide(dtype)), (2, 3))
    array = arrays.make(rounded(host, dtype), dtype, device)
    info = arrays.info(array)

    def say(what: str, found: object, expected: object) -> None:
        subject.equal(_at(what, dtype, device), found, expected, "say what is so")

    say("info().dtype", bare(info.dtype), dtype)
    say("info().shape", info.shape, (2, 3))
    say("info().device is text", isinstance(info.device, str), True)
    say("owns(array)", subject.backend.owns(array), True)
    say("is_differentiable(array)", arrays.is_differentiable(array), True)
    say("is_complex(array)", arrays.is_complex(array), dtype.startswith("complex"))
    say("eps(array)", arrays.eps(array), EPS[dtype])
    precision = environment.precision(array)
    coarser = precision.product_eps > EPS[dtype] and precision.setting != ""
    say("precision(array) names what is coarser", coarser or precision.product_eps == 0, True)
    wider = precision.result_eps == 0 or precision.result_eps > EPS[dtype]
    say("result_eps is 0 or coarser than the dtype", wider, True)
    spacings = environment.spacings_inside(lambda x: (x[0] * x[0],), (array,))
    say("spacings_inside of x*x are known or none", spacings <= {EPS[dtype]}, True)
    say("expand(array)", arrays.expand(array), None)
    stacked = arrays.stack([array, array])
    say("the shape of stack", arrays.info(stacked).shape, (2, 2, 3))
    say("the dtype of stack", bare(arrays.info(stacked).dtype), dtype)
    say("the device of stack", arrays.info(stacked).device, info.device)
    subject.same(_at("stack", dtype, device), arrays.to_host(stacked), np.stack([host, host]),
                 "stack keeps the values")  # fmt: skip
    apart = arrays.noncontiguous(array)
    say("info of noncontiguous", arrays.info(apart), info)
    subject.same(_at("noncontiguous", dtype, device), arrays.to_host(apart), host,
                 "noncontiguous keeps the values")  # fmt: skip
    spread = arrays.expanded(array)
    if spread is not None:
        say("info of expanded", arrays.info(spread), info)
        repeated = np.full_like(host, host.reshape(-1)[0])
        subject.same(_at("expanded", dtype, device), arrays.to_host(spread), repeated,
                     "expanded repeats the first entry")  # fmt: skip
        rows = arrays.expanded(array, 0)
        say("info of expanded along an axis", arrays.info(rows), info)
        subject.same(_at("expanded", dtype, device), arrays.to_host(rows),
                     np.broadcast_to(host[:1], host.shape),
                     "expanded along an axis repeats the first row")  # fmt: skip
    if _widens(subject, array, _wide(dtype)):
        with environment.widening():
            wide = arrays.widen(array)
            say("the dtype of widen", bare(arrays.info(wide).dtype), _wide(dtype))
            say("the device of widen", arrays.info(wide).device, info.device)
            subject.same(_at("widen", dtype, device), arrays.to_host(wide), host,
                         "widen keeps the values")  # fmt: skip


def _widens(subject: Subject, array: Array, wide: str) -> bool:
    """Returns whether the device of `array` holds double precision, the dtype `wide`, at all."""
    arrays = subject.arrays
    device = arrays.info(array).device
    doubles = [
        arrays.info(arrays.make(np.zeros(1), wide, name)).device
        for name in places(subject, wide)
        if wide in subject.dtypes
    ]
    return device in doubles


def absent(subject: Subject, scenario: Scenario) -> list[str]:
    """Returns the names that the scenario uses and `xp` has not."""
    return sorted(name for name in ClosedForms(scenario).names if not _has(subject, name))


def _has(subject: Subject, name: str) -> bool:
    try:
        attrgetter(name)(subject.backend.xp)
    except AttributeError:
        return False
    return True


def namespace(subject: Subject, scenarios: Sequence[Scenario]) -> None:
    """Checks that `xp` has every name that these scenarios use."""
    users = {} if _has(subject, "zeros") else {"zeros": "the default dtype"}
    by_default = ArrayOperations.zeros_for_absent
    if type(subject.arrays).zeros_for_absent is by_default and not _has(subject, "zeros_like"):
        users["zeros_like"] = "absent cotangents and gradients"
    for scenario in scenarios:
        users |= {name: scenario.name for name in absent(subject, scenario) if name not in users}
    subject.comparisons += 1
    if users:
        listed = ", ".join(f"{name} ({user})" for name, user in sorted(users.items()))
        raise ConformanceError(
            f"xp lacks {listed}",
            "add functions of these names to xp, as the Array API standard has them, or leave out "
            "the scenarios: scenarios=[…], excused={…}",
        )


def refusals(subject: Subject) -> None:
    """Checks that the engine refuses what it lacks by `NotSupportedError` and by no other error."""
    arrays = subject.arrays
    one, dtype = np.zeros(2), subject.dtypes[0]
    _refused(subject, "make of dtype 'float12'", lambda: arrays.make(one, "float12"))
    _refused(subject, "make on device 'nowhere'", lambda: arrays.make(one, dtype, "nowhere"))


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
    """Checks that the engine has a name and a version, lists its dtypes and devices, and owns
    arrays alone.
    """
    backend, arrays = subject.backend, subject.arrays
    for what in ("name", "way", "compiled_way"):
        found = getattr(backend, what)
        subject.equal(f"{what} is text", isinstance(found, str) and found != "", True, "a word")
    version = backend.environment.version
    subject.equal("environment.version is text", str(version) == version != "", True, "a word")
    subject.equal(
        "unavailable()", backend.environment.unavailable(), None, "say why, or return None"
    )
    for what, listed in (("dtypes()", arrays.dtypes()), ("devices()", arrays.devices())):
        fine = listed != [] and [str(name) for name in listed] == listed
        subject.equal(
            f"{what} lists names, each once", fine and len(set(listed)) == len(listed), True,
            "a list of str",
        )  # fmt: skip
    unknown = [name for name in subject.dtypes if name not in EPS]
    subject.equal("dtypes() that are no floating dtypes", unknown, [], "name dtypes as NumPy does")
    for leaf in (None, 1.0, 1j, "array", [arrays.make(np.zeros(1), subject.dtypes[0])], object()):
        subject.equal(
            f"owns({type(leaf).__name__})", backend.owns(leaf), False, "own arrays, nothing else"
        )
    subject.equal(
        "stored_only() has other dtypes", arrays.stored_only().dtypes(), arrays.dtypes(),
        "return the operations themselves, or ones like them",
    )  # fmt: skip


def integers(subject: Subject) -> None:
    """Checks that integers and booleans are arrays without derivatives."""
    backend, arrays = subject.backend, subject.arrays
    for host in (np.array([3, 0, -1]), np.array([True, False])):
        dtype = host.dtype.name
        array = arrays.make(host, dtype)
        for what, found, expected in (
            ("info().dtype", bare(arrays.info(array).dtype), dtype),
            ("owns", backend.owns(array), True),
            ("is_differentiable", arrays.is_differentiable(array), False),
            ("is_complex", arrays.is_complex(array), False),
            ("to_host", arrays.to_host(array).tolist(), host.tolist()),
            ("to_host(copy)", arrays.to_host(arrays.copy(array)).tolist(), host.tolist()),
        ):
            subject.equal(f"{what} of {dtype} values", found, expected, "say what is so")


def devices(subject: Subject) -> None:
    """Checks that `info` tells devices apart, and that `place` moves a copy."""
    arrays = subject.arrays
    for device in arrays.devices():
        holds = [d for d in subject.dtypes if _holds(arrays, d, device)]
        if not holds:
            raise ConformanceError(
                f"device {device} of devices() holds none of {', '.join(subject.dtypes)}",
                "name devices on which make() can make an array",
            )
        found = arrays.info(arrays.make(np.ones(2), holds[0], device)).device
        subject.equal(
            f"info().device of an array made on {device!r}", found, device,
            "info().device must be the name that devices() has for it: ask the array",
        )  # fmt: skip
        if len(arrays.devices()) == 1:
            continue
        moved = arrays.place(arrays.make(np.ones(2), holds[0]), device)
        subject.equal(
            f"the device of place(array, {device!r})", arrays.info(moved).device, found,
            "place must return a copy on that device",
        )  # fmt: skip
        subject.same(
            f"place(array, {device!r})", arrays.to_host(moved), np.ones(2), "keep the values"
        )
