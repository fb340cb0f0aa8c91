"""Adapters, and adapters with one thing wrong, each of which the conformance kit must catch."""

import contextlib
import copy
import importlib
import inspect
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

from adjudge.conformance import FAULTS, FaultyBackend, assert_conforms, checks
from adjudge.engine.contract import ArrayInfo, replaced
from adjudge.engine.registry import backend_named

STATEFUL = ("torch", "jax", "mlx", "tensorflow")
FORWARD = (*STATEFUL, "autograd")
AUTOMATIC = (*FORWARD, "tinygrad", "lucid")
COMPLEX = ("numpy", "array_api_strict", *FORWARD)
ENGINES = ("numpy", "array_api_strict", *AUTOMATIC)
DEVICES = ("array_api_strict", "jax", "tensorflow")
EXCUSED = {
    "torch": {"FF": "PyTorch's forward mode does not nest"},
    "autograd": {"vmap": "autograd has no batching", "compile": "autograd has no compiler"},
    "mlx": {"linalg": "inv and cholesky have no derivative in MLX, and solve none for its matrix"},
    "tinygrad": {
        "jvp": "tinygrad has reverse mode alone",
        "vmap": "it has no batching",
        "compile": "TinyJit records no gradients",
        "complex": "it has no complex numbers",
        "linalg": "it has no inv, solve and cholesky",
    },
    "tensorflow": {"promotion": "TensorFlow computes with arrays of one dtype"},
    "lucid": {
        "jvp": "Lucid 2 has reverse mode alone",
        "RR": "its gradients are NumPy arrays, which nothing records",
        "vmap": "it has no batching",
        "compile": "gradients end at a function that lucid.compile made",
        "complex": "it has no conj, real and imag",
        "linalg": "its rules of inv and solve are wrong",
        "indexing": "of an index that occurs twice one gradient is lost",
    },
}


OPEN = []


def narrow(host):
    return host.astype("complex64" if host.dtype.kind == "c" else "float32").astype(host.dtype)


class Mutation:
    """Methods of the backend, of its arrays or of its environment, in place of the adapter's own.

    `original(self, name)` is what they replace.
    """

    engines = ENGINES


def original(self, name):
    return getattr(super(type(self), self), name)


class NoConjugation(Mutation):
    """The pullback is the transpose of J, as that of JAX is."""

    engines = FORWARD

    def vjp(self, f, x):
        y, pullback = original(self, "vjp")(f, x)
        conj = self.xp.conj

        def turned(arrays):
            return tuple(
                conj(a) if a is not None and self.owns(a) and self.arrays.is_complex(a) else a
                for a in arrays
            )

        return y, lambda w: turned(pullback(turned(w)))


class DeviceIsDefault(Mutation):
    """info() says the default device."""

    engines = DEVICES

    def info(self, array):
        one = original(self, "info")(self.make(np.zeros(1), "float32"))
        return replace(original(self, "info")(array), device=one.device)


class DeviceIsInvented(Mutation):
    """info() says a device that there is not."""

    def info(self, array):
        return replace(original(self, "info")(array), device="somewhere")


class FromHostForgetsDevice(Mutation):
    """from_host makes arrays on the default device."""

    engines = DEVICES

    def from_host(self, host, like):
        dtype = self.info(like).dtype.rpartition(".")[2]
        return self.make(host, dtype)


class MakeForgetsDevice(Mutation):
    """make makes arrays on the default device."""

    engines = DEVICES

    def make(self, values, dtype, device=None):
        made = original(self, "make")(values, dtype, device)
        return made if device is None else original(self, "make")(values, dtype)


class CopyIsNone(Mutation):
    """copy returns the array itself."""

    engines = ("numpy", "array_api_strict", "torch", "autograd")

    def copy(self, array):
        return array


class ToHostRounds(Mutation):
    """to_host goes through float32."""

    def to_host(self, array, like=None):
        return narrow(original(self, "to_host")(array, like))


class FromHostRounds(Mutation):
    """from_host goes through float32."""

    def from_host(self, host, like):
        return original(self, "from_host")(narrow(host), like)


class FromHostRoundsTwice(Mutation):
    """from_host truncates in place of rounding."""

    def from_host(self, host, like):
        eps = self.eps(like)
        if host.dtype.kind == "f":
            mantissa, exponent = np.frexp(host)
            host = np.ldexp(np.trunc(mantissa * (2 / eps)) * (eps / 2), exponent)
        return original(self, "from_host")(host, like)


class ToHostLosesSigns(Mutation):
    """Minus zero comes back as zero."""

    def to_host(self, array, like=None):
        return original(self, "to_host")(array, like) + 0.0


class ToHostShares(Mutation):
    """to_host gives the array's own memory."""

    engines = ("numpy", "autograd")

    def to_host(self, array, like=None):
        host = original(self, "to_host")(array, like)
        return array if array.dtype == host.dtype else host


class FromHostShares(Mutation):
    """from_host gives the host array's own memory."""

    engines = ("numpy", "torch", "lucid")

    def from_host(self, host, like):
        array = original(self, "from_host")(host, like)
        if host.dtype.name != self.info(array).dtype or min(host.strides, default=0) < 0:
            return array
        if not host.flags.writeable:
            return array
        if self.name == "lucid":
            return sys.modules["lucid"].tensor(host)
        return host if self.name == "numpy" else sys.modules["torch"].from_numpy(host)


class Accumulates(Mutation):
    """Gradients add up from call to call."""

    engines = AUTOMATIC

    def vjp(self, f, x):
        y, pullback = original(self, "vjp")(f, x)
        total = []

        def adding(w):
            g = pullback(w)
            total[:] = [
                b if a is None else a if b is None else a + b
                for a, b in zip(total or [None] * len(g), g, strict=True)
            ]
            return tuple(total)

        return y, adding


class NoneIsOne(Mutation):
    """An absent cotangent acts as ones."""

    engines = AUTOMATIC

    def vjp(self, f, x):
        y, pullback = original(self, "vjp")(f, x)

        def filled(w):
            pairs = zip(w, y, strict=True)
            return tuple(self.xp.ones_like(b) if a is None else a for a, b in pairs)

        return y, lambda w: pullback(filled(w))


class NoneRaises(Mutation):
    """An absent cotangent is an error."""

    engines = AUTOMATIC

    def vjp(self, f, x):
        y, pullback = original(self, "vjp")(f, x)

        def strict(w):
            if None in [None if a is None else 0 for a in w]:
                raise TypeError("no cotangent")
            return pullback(w)

        return y, strict


class NoTangentIsOne(Mutation):
    """An absent tangent acts as ones."""

    engines = FORWARD

    def jvp(self, f, x, v):
        pairs = zip(v, x, strict=True)
        filled = tuple(self.xp.ones_like(b) if a is None else a for a, b in pairs)
        return original(self, "jvp")(f, x, filled)


class TangentOfOtherSign(Mutation):
    """Forward mode has the other sign."""

    engines = FORWARD

    def jvp(self, f, x, v):
        y, jv = original(self, "jvp")(f, x, v)
        return y, tuple(None if a is None else -a for a in jv)


class NoIsolation(Mutation):
    """isolation() does nothing."""

    engines = (*STATEFUL, "lucid")

    def isolation(self, leaves):
        return contextlib.nullcontext()


class IsolationWithoutFinally(Mutation):
    """isolation() restores nothing where an exception leaves it."""

    engines = STATEFUL

    @contextlib.contextmanager
    def isolation(self, leaves):
        context = original(self, "isolation")(leaves)
        OPEN.append(context)  # what is collected is left, and so restores
        context.__enter__()
        yield
        context.__exit__(None, None, None)


class IsolationSwallows(Mutation):
    """isolation() catches what is raised within it."""

    @contextlib.contextmanager
    def isolation(self, leaves):
        with contextlib.suppress(Exception), original(self, "isolation")(leaves):
            yield


class StateIsConstant(Mutation):
    """random_state() does not change when numbers are drawn."""

    engines = ("torch", "mlx")

    def random_state(self):
        return 1


class StateIsNew(Mutation):
    """random_state() is another one each time."""

    def random_state(self):
        return object()


class StateStays(Mutation):
    """set_random_state() does nothing."""

    engines = ("torch", "mlx")

    def set_random_state(self, state):
        pass


class AlwaysDetached(Mutation):
    """detached() is always true."""

    engines = AUTOMATIC

    def detached(self, y):
        return True


class NeverComplex(Mutation):
    """is_complex() is always false."""

    engines = COMPLEX

    def is_complex(self, array):
        return False


class AlwaysDifferentiable(Mutation):
    """is_differentiable() is always true."""

    def is_differentiable(self, array):
        return True


class OneEps(Mutation):
    """eps() is that of float64."""

    def eps(self, array):
        return 2.0**-52


class OwnsAll(Mutation):
    """owns() is always true."""

    def owns(self, leaf):
        return True


class MakeKeepsNoDtype(Mutation):
    """make() makes float32 of float64."""

    def make(self, values, dtype, device=None):
        narrower = {"float64": "float32", "complex128": "complex64"}.get(dtype, dtype)
        return original(self, "make")(values, narrower, device)


class MakeRaisesOther(Mutation):
    """make() raises a KeyError for an unknown dtype."""

    def make(self, values, dtype, device=None):
        if dtype not in ("float64", "float32", "float16", "bfloat16", "complex128", "complex64",
                         "int64", "bool"):  # fmt: skip
            raise KeyError(dtype)
        return original(self, "make")(values, dtype, device)


class InfoIsVague(Mutation):
    """info() calls every dtype float64."""

    def info(self, array):
        info = original(self, "info")(array)
        return ArrayInfo(info.shape, "float64", info.device, info.layout)


class InventedDtype(Mutation):
    """dtypes() names one that there is not."""

    def dtypes(self):
        return [*original(self, "dtypes")(), "float128x"]


class InventedDevice(Mutation):
    """devices() names one that there is not."""

    def devices(self):
        return [*original(self, "devices")(), "nowhere"]


class WidenIsNone(Mutation):
    """widen() returns the array itself."""

    def widen(self, array):
        return array


class StackSwaps(Mutation):
    """stack() has the wrong order."""

    def stack(self, arrays):
        return original(self, "stack")([-a for a in arrays])


class LacksByOtherError(Mutation):
    """What is missing raises a RuntimeError."""

    engines = AUTOMATIC

    def vmap(self, function):
        raise RuntimeError("not here")


class VmapOfFirst(Mutation):
    """vmap repeats the first row."""

    engines = STATEFUL

    def vmap(self, function):
        mapped = original(self, "vmap")(function)

        def first(*stacks):
            rows = mapped(*stacks)
            return tuple(
                None if r is None else self.arrays.stack([r[0]] * r.shape[0]) for r in rows
            )

        return first


class CompilesAnother(Mutation):
    """The compiled function is another one."""

    engines = STATEFUL

    def compile(self, function):
        return lambda *x: 2 * function(*x)


class SecondOrderIsStill(Mutation):
    """vjp_map is not differentiable in x."""

    engines = (*FORWARD, "tinygrad")

    def vjp_map(self, f, x_count):
        def still(x_and_w):
            arrays = self.arrays
            host = [arrays.from_host(arrays.to_host(a), a) for a in x_and_w[:x_count]]
            return original(self, "vjp_map")(f, x_count)((*host, *x_and_w[x_count:]))

        return still


class TapeIsUsedUp(Mutation):
    """A pullback can be called once."""

    engines = ("tensorflow",)

    def vjp(self, f, x):
        tape = sys.modules["tensorflow"].GradientTape()
        with tape:
            tape.watch(list(x))
            y = f(x)
        zeros = self.arrays.zeros_for_absent
        return y, lambda w: tuple(tape.gradient(list(y), list(x), list(zeros(w, y))))


class GatheredIsSparse(Mutation):
    """Gradients of what was gathered are IndexedSlices, as tapes have them."""

    engines = ("tensorflow",)

    def vjp(self, f, x):
        tape = sys.modules["tensorflow"].GradientTape(persistent=True)
        with tape:
            tape.watch(list(x))
            y = f(x)
        zeros = self.arrays.zeros_for_absent
        return y, lambda w: tuple(tape.gradient(list(y), list(x), list(zeros(w, y))))


class GradientsStay(Mutation):
    """Gradients are those of `lucid.autograd.grad`, which keeps what inner tensors got."""

    engines = ("lucid",)

    def vjp(self, f, x):
        lucid = sys.modules["lucid"]
        leaves = tuple(lucid.tensor(a.numpy(), requires_grad=True) for a in x)
        y = f(leaves)

        def pullback(w):
            terms = zip(y, self.arrays.zeros_for_absent(w, y), strict=True)
            first, *others = ((a * b).sum() for a, b in terms)
            g = lucid.autograd.grad(
                sum(others, first), leaves, retain_graph=True, allow_unused=True
            )
            several = g if isinstance(g, tuple) else (g,)
            return tuple(None if a is None else lucid.tensor(a.copy()) for a in several)

        return y, pullback


def subclasses():
    found = {one.__doc__.rstrip("."): one for one in Mutation.__subclasses__()}
    return {**found, **{f"fault: {fault}": fault for fault in FAULTS}}


MUTATIONS = subclasses()


SHOWN_BY = {
    "transpose": "matrix product",
    "conjugate": "squared modulus",
    NoConjugation: "squared modulus",
    NoTangentIsOne: "several inputs and outputs",
    GatheredIsSparse: "indexing with repeats",
    GradientsStay: "several inputs and outputs",
}
"""What the first scenario does not show."""


def needs_two_devices(name):
    mutation = MUTATIONS[name]
    return mutation == "wrong device" or getattr(mutation, "engines", None) == DEVICES


def applies(name, engine):
    mutation = MUTATIONS[name]
    if needs_two_devices(name) and engine in ("jax", "tensorflow"):
        return True  # tests/conftest.py and the one beside this give them two
    if isinstance(mutation, str):
        if mutation == "conjugate":
            return engine in FORWARD
        # no array of JAX or TensorFlow can be written into, and none of tinygrad that has a use
        fixed = ("jax", "tinygrad", "tensorflow")
        writes = mutation.startswith("writes") and engine in fixed
        return engine in AUTOMATIC and mutation != "wrong device" and not writes
    return engine in mutation.engines


def mutant(name, engine):
    backend, mutation = backend_named(engine), MUTATIONS[name]
    if isinstance(mutation, str):
        return FaultyBackend(backend, mutation)
    methods = {k: v for k, v in vars(mutation).items() if inspect.isfunction(v)}
    changed = replaced(
        backend, arrays=copy.copy(backend.arrays), environment=copy.copy(backend.environment)
    )
    for part in (changed, changed.arrays, changed.environment):
        mine = {k: methods.pop(k) for k in list(methods) if hasattr(part, k)}
        part.__class__ = type(mutation.__name__, (type(part),), mine)
    assert not methods, "the mutation changes what is no part of the contract"
    return changed


def disturbances(engine):
    if engine == "mlx":
        mx = importlib.import_module("mlx.core")
        return {"random numbers": (lambda: mx.random.uniform(), None)}
    if engine == "lucid":
        lucid = importlib.import_module("lucid")
        return {"recording": (lambda: setattr(lucid, "_grad_enabled", False), lucid.grad_enabled)}
    if engine == "tensorflow":
        tf32 = importlib.import_module("adjudge_tensorflow.backend").TF32
        return {"TF32": (lambda: tf32.write(not tf32.read()), tf32.read)}
    if engine != "torch":
        return {}
    torch = importlib.import_module("torch")
    draw = {"random numbers": (lambda: torch.rand(1), None)}
    default = (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype)
    return {**draw, "default dtype": default}


def caught(name, engine):
    """The first check that fails, or None."""
    given = {"excused": EXCUSED.get(engine), "disturb": disturbances(engine)}
    given["scenarios"] = [SHOWN_BY.get(MUTATIONS[name], "elementwise")]
    with restored(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for check in checks(mutant(name, engine), **given):
                # the wrapper of faults goes to the host, which no batched array can
                if name.startswith("fault") and not check.id.endswith(("-vjp", "-jvp")):
                    continue
                # compiling takes seconds, and one mutation is about it
                if check.id.endswith("-compile") and MUTATIONS[name] is not CompilesAnother:
                    continue
                try:
                    check.run()
                except Exception as error:
                    return check.id, error
        except Exception as error:  # the adapter raises before any check runs
            return "checks", error
    return None


@contextlib.contextmanager
def restored():
    """A mutant may leave what it should have restored."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    wide = jax and jax.config.jax_enable_x64
    default, state = torch and torch.get_default_dtype(), torch and torch.get_rng_state()
    tensorflow = sys.modules.get("adjudge_tensorflow.backend")
    coarse = tensorflow and tensorflow.TF32.read()
    try:
        yield
    finally:
        while OPEN:
            OPEN.pop().__exit__(None, None, None)
        if jax:
            jax.config.update("jax_enable_x64", wide)
        if torch:
            torch.set_default_dtype(default)
            torch.set_rng_state(state)
        if tensorflow:
            tensorflow.TF32.write(coarse)
        if "lucid" in sys.modules:
            sys.modules["lucid"]._grad_enabled = True


CASES = [
    pytest.param(name, engine, id=f"{engine}-{name}", marks=pytest.mark.backend(engine))
    for engine in ENGINES
    for name in MUTATIONS
    if applies(name, engine)
]


LEAST = {"autograd": 10_000, "mlx": 10_000, "tensorflow": 10_000, "tinygrad": 5_000, "lucid": 1_000}
"""Fewer comparisons than the kit makes on the adapters that test_conformance.py leaves out."""


@pytest.mark.parametrize(
    "engine", [pytest.param(name, marks=pytest.mark.backend(name)) for name in LEAST]
)
def test_the_adapter_conforms(engine):
    with restored():
        summary = assert_conforms(engine, excused=EXCUSED[engine], disturb=disturbances(engine))

    assert summary.scenarios == 32
    assert summary.comparisons > LEAST[engine]


@pytest.mark.parametrize(("name", "engine"), CASES)
def test_the_kit_catches_the_mutation(name, engine):
    assert caught(name, engine) is not None


def test_mutations_of_devices_are_made_in_jax():
    assert sum(case.values[1] == "jax" and needs_two_devices(case.values[0]) for case in CASES) == 4
