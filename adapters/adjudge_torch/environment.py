"""What PyTorch keeps outside of tensors: defaults, random generators, and settings of precision.

Since 2.9 each operator of each library has a setting of its own, `fp32_precision`, which inherits
from that of its library and that of all; the older flags raise where both kinds were used
(https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices).
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch

from adjudge.engine import (
    EPS,
    Array,
    Arrays,
    Environment,
    FlatFunction,
    Precision,
    Setting,
)
from adjudge_torch import precision

_EXACT = (torch.float64, torch.complex128)
"""The dtypes whose precision no setting changes."""
_AS_EXACT_AS_THE_DTYPE = Precision()


@contextmanager
def _kept_gradients(leaves: Sequence[torch.Tensor]) -> Iterator[None]:
    """Returns a context after which `.grad` of these tensors is what it was, and so are whether
    they require a gradient and, where they are small together, what they hold.

    A backward pass that runs another one adds to `.grad`, as that of a checkpoint does; and it adds
    in place. An embedding with `max_norm` and a clipping of weights write into the weights.
    """
    before = [(leaf, leaf.grad) for leaf in leaves]
    copies = [None if grad is None else (grad._version, grad.clone()) for _, grad in before]
    marks = [leaf.requires_grad for leaf in leaves]
    small = sum(leaf.numel() for leaf in leaves if _holds_numbers(leaf)) <= MOST_KEPT
    kept = [leaf for leaf in leaves if small and _holds_numbers(leaf)]
    # A tensor that shares the memory, in case that another one is put in its place.
    held = [(leaf, leaf.detach(), leaf.detach().clone()) for leaf in kept]
    try:
        yield
    finally:
        with torch.no_grad():
            for leaf, memory, numbers in held:
                if leaf.data_ptr() != memory.data_ptr():
                    leaf.data = memory
                # Writes through `.data` do not count as a version.
                if not torch.equal(leaf, numbers):
                    leaf.copy_(numbers)
            for leaf, marked in zip(leaves, marks, strict=True):
                if leaf.requires_grad != marked:
                    leaf.requires_grad_(marked)
            for (leaf, grad), copy in zip(before, copies, strict=True):
                if leaf.grad is not grad:
                    leaf.grad = grad
                if grad is not None and copy is not None and grad._version != copy[0]:
                    grad.copy_(copy[1])


MOST_KEPT = 2**20
"""To keep the weights of a large model would take as much memory again, and more time than a check.
The weights that f closes over are kept where they have no more numbers than this together. The
value is ours."""


def _holds_numbers(leaf: torch.Tensor) -> bool:
    """Returns whether a tensor has numbers in memory, one after another or in strides."""
    lazy = torch.nn.parameter.is_lazy(leaf)
    return not lazy and leaf.layout is torch.strided and leaf.device.type != "meta"


def default_device() -> torch.device | None:
    """Returns the default device that was set, if any. `torch.get_default_device` says "cpu" of
    none as well, and to set that would leave a mode behind through which every function goes.
    """
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _set_default_device(device: torch.device | None) -> None:
    torch.set_default_device(device)
    if device is None:  # else `torch.get_default_device` of PyTorch 2.6 fails from then on
        del torch._GLOBAL_DEVICE_CONTEXT.device_context


def _set_anomaly_mode(on: bool) -> None:
    torch.set_anomaly_enabled(on, torch.is_anomaly_check_nan_enabled())


def _set_anomaly_check(check_nan: bool) -> None:
    torch.set_anomaly_enabled(torch.is_anomaly_enabled(), check_nan)


def _set_denormal(seen: bool) -> None:
    torch.set_flush_denormal(not seen)


_FLAGS = (
    ("_is_multithreading_enabled", "_set_multithreading_enabled"),
    (
        "_get_deterministic_fill_uninitialized_memory",
        "_set_deterministic_fill_uninitialized_memory",
    ),
    ("_check_sparse_tensor_invariants", "_set_check_sparse_tensor_invariants"),
    ("_get_warnAlways", "_set_warnAlways"),
    ("_get_mkldnn_enabled", "_set_mkldnn_enabled"),
    ("_get_cudnn_enabled", "_set_cudnn_enabled"),
    ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
    ("_get_flash_sdp_enabled", "_set_sdp_use_flash"),
    ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"),
    ("_get_math_sdp_enabled", "_set_sdp_use_math"),
    ("_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
    ("is_autocast_cache_enabled", "set_autocast_cache_enabled"),
)
"""Switches of PyTorch, by what reads and what sets them; a version may lack some."""
_AUTOCAST = (
    (torch.is_autocast_enabled, torch.set_autocast_enabled),
    (torch.get_autocast_dtype, torch.set_autocast_dtype),
)

_DEFAULTS = (
    Setting(torch.get_default_dtype, torch.set_default_dtype),
    Setting(default_device, _set_default_device),
    Setting(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    Setting(torch.get_num_threads, torch.set_num_threads),
    Setting(torch.is_anomaly_enabled, _set_anomaly_mode),
    Setting(torch.is_anomaly_check_nan_enabled, _set_anomaly_check),
    # Where denormal numbers are flushed, the processor takes the smallest of them for zero.
    Setting(partial(operator.lt, 0.0, 5e-324), _set_denormal),
    *(
        Setting(partial(read, kind), partial(write, kind))
        for kind in ("cpu", "cuda")
        for read, write in _AUTOCAST
    ),
    *(
        Setting(getattr(torch._C, read), getattr(torch._C, write))
        for read, write in _FLAGS
        if hasattr(torch._C, read) and hasattr(torch._C, write)
    ),
)


class TorchEnvironment(Environment):
    """PyTorch's global state. Contract: see `Environment`."""

    def __init__(self) -> None:
        """The version is that of PyTorch."""
        super().__init__(str(torch.__version__))

    @contextmanager
    def isolation(self, leaves: Sequence[Array]) -> Iterator[None]:
        cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        generator, settings = torch.default_generator.get_state(), _Settings()
        device = torch.cuda.current_device() if cuda else 0
        try:
            with (
                torch.random.fork_rng(devices=cuda) if cuda else nullcontext(),
                torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext(),
                torch.enable_grad(),
            ):
                yield
        finally:
            torch.default_generator.set_state(generator)
            if cuda:
                torch.cuda.set_device(device)
            settings.put_back()

    def carried_settings(self) -> Callable[[], AbstractContextManager[object]] | None:
        modes = torch.overrides._get_current_function_mode_stack()
        known = all(type(mode) is precision.Widening for mode in modes)
        if not known or torch.cuda.is_initialized():  # streams belong to threads
            return None
        on, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return partial(_carried, bool(modes), on, dtype)

    def random_state(self) -> Hashable:
        cpu = torch.default_generator.get_state().numpy().tobytes()
        if not (torch.cuda.is_initialized() and torch.cuda.is_available()):
            return _RandomState((cpu,))
        gpus = torch.cuda.get_rng_state_all()
        return _RandomState((cpu, *(state.numpy().tobytes() for state in gpus)))

    def set_random_state(self, state: Hashable) -> None:
        assert isinstance(state, _RandomState)
        _set_states(state)

    def generator(self, one: object) -> Setting | None:
        if not isinstance(one, torch.Generator):
            return None
        return Setting(
            lambda: one.get_state().numpy().tobytes(), lambda state: one.set_state(_bytes(state))
        )

    def keeping_gradients(self, held: Sequence[object]) -> AbstractContextManager[None]:
        leaves = [one for one in held if isinstance(one, torch.Tensor) and one.requires_grad]
        for one in held:
            if isinstance(one, torch.nn.Module):
                leaves += one.parameters()
        each = {id(leaf): leaf for leaf in leaves if leaf.is_leaf}
        return _kept_gradients(list(each.values())) if each else nullcontext()

    def widening(self) -> AbstractContextManager[None]:
        return precision.Widening()

    def widening_past_casts(
        self, likes: Arrays = (), coarsest: float = math.inf
    ) -> AbstractContextManager[None]:
        return precision.WideningPastCasts(likes, coarsest)

    def past_casts(
        self, f: FlatFunction, likes: Arrays, coarsest: float = math.inf
    ) -> FlatFunction:
        def past(x: Arrays) -> Arrays:
            with precision.read_as_double():
                return f(x)

        return past

    def aside(self) -> AbstractContextManager[None]:
        return precision.aside()

    def highest_precision(self) -> AbstractContextManager[None]:
        return highest()

    def precision(self, array: Array) -> Precision:
        if array.dtype in _EXACT:
            return _AS_EXACT_AS_THE_DTYPE
        coarse = of_products(array)
        return coarse or Precision(setting=of_operators(array))

    def determinism_setting(self, array: Array) -> str:
        return of_repeatability(array)

    def spacings_inside(self, f: FlatFunction, x: Arrays) -> frozenset[float]:
        return precision.spacings(lambda: f(x))

    def moved_by_rounding(
        self, f: FlatFunction, draw: int, *, wide: bool = False
    ) -> FlatFunction | None:
        return precision.moved_by_rounding(f, draw, wide=wide)


@contextmanager
def _carried(widening: bool, autocast: bool, dtype: torch.dtype) -> Iterator[None]:
    with (
        precision.Widening() if widening else nullcontext(),
        torch.autocast("cpu", dtype) if autocast else nullcontext(),
    ):
        yield


class _RandomState(tuple[bytes, ...]):
    """The states of the generators: of the CPU, and of the GPUs once they are used.

    Where the GPUs are used for the first time between two of these, only what both hold can be
    compared.
    """

    __slots__ = ()

    def __ne__(self, other: object) -> bool:
        if not isinstance(other, _RandomState):
            return True
        shared = min(len(self), len(other))
        return self[:shared] != other[:shared]

    def __eq__(self, other: object) -> bool:
        return not self != other

    def __hash__(self) -> int:
        return hash(self[0])


def _bytes(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def _set_states(states: _RandomState) -> None:
    """Sets the generators of the CPU and the GPUs. A GPU that was used for the first time since
    then goes back to the beginning of its seed, where it was.
    """
    cpu, *gpus = map(_bytes, states)
    torch.default_generator.set_state(cpu)
    if torch.cuda.is_initialized():
        for k, generator in enumerate(torch.cuda.default_generators):
            if k < len(gpus):
                generator.set_state(gpus[k])
            else:
                generator.manual_seed(generator.initial_seed())


NARROW = {"tf32": EPS["tf32"], "bf16": EPS["bfloat16"]}
"""The spacing at 1 of what each value of `fp32_precision` rounds factors to."""

ROOTS = ("", "cudnn")
"""The paths of the settings for everything, and for everything on CUDA. That of mkldnn is only
read: to set it (2.13) sets that of everything."""
OPERATORS = (
    *("cuda.matmul", "cudnn.conv", "cudnn.rnn"),
    *("mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"),
)
DETERMINISTIC = "torch.use_deterministic_algorithms(True)"

REDUCTIONS = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
"""Flags of `torch.backends.cuda.matmul` that let sums be rounded; the last one exists since 2.7."""


def of_products(array: torch.Tensor) -> Precision | None:
    """Returns how coarse products of this dtype are on this device, and by which setting.

    The answer is `None` where they are as exact as the dtype.
    """
    kind, dtype = array.device.type, array.dtype
    if dtype.is_floating_point and dtype is not torch.float64 and torch.is_autocast_enabled(kind):
        narrow = torch.get_autocast_dtype(kind)
        if torch.finfo(narrow).eps > torch.finfo(dtype).eps:
            eps = float(torch.finfo(narrow).eps)
            return Precision(eps, f"torch.autocast({kind!r}, dtype={narrow})")
    if dtype not in (torch.float32, torch.complex64):
        return None
    if kind == "cuda" and _tf32("cuda.matmul", "allow_tf32"):
        return Precision(EPS["tf32"], _named("cuda.matmul", "allow_tf32"))
    narrowed = _precision("mkldnn.matmul")
    if kind == "cpu" and narrowed in NARROW and not products_are_exact(narrowed):
        setting = f"torch.backends.mkldnn.matmul.fp32_precision = '{narrowed}'"
        return Precision(NARROW[narrowed], setting)
    return None


def of_operators(array: torch.Tensor) -> str:
    """Returns the settings that make some operators coarser than the dtype, and not products."""
    if array.device.type != "cuda":
        return ""
    found = []
    if array.dtype in (torch.float32, torch.complex64) and _tf32("cudnn.conv", "allow_tf32"):
        found.append(f"{_named('cudnn.conv', 'allow_tf32')} (convolutions)")
    short = {torch.float16: "fp16", torch.bfloat16: "bf16"}.get(array.dtype, "none")
    matmul: Any = torch.backends.cuda.matmul
    for name in REDUCTIONS:
        if f"_{short}_" in name and getattr(matmul, name, False):
            found.append(f"torch.backends.cuda.matmul.{name} = True")
    return ", ".join(found)


def of_repeatability(array: torch.Tensor) -> str:
    """Returns what makes results on the device of `array` repeatable; "" where they are already.

    It covers the operators of PyTorch, which can choose an order of additions. Of a kernel of the
    user's own it can only remind.
    """
    kind = array.device.type
    if torch.are_deterministic_algorithms_enabled():
        picks = kind == "cuda" and torch.backends.cudnn.benchmark
        return "torch.backends.cudnn.benchmark = False" if picks else ""
    if kind == "cpu":  # the gradient of x[i] adds float32 with atomics where there are threads
        several = torch.get_num_threads() > 1 and array.dtype is torch.float32
        return f"{DETERMINISTIC}, or torch.set_num_threads(1)" if several else ""
    if kind != "cuda":
        return DETERMINISTIC
    found = DETERMINISTIC
    if not os.environ.get("CUBLAS_WORKSPACE_CONFIG"):
        found += ", with CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment"
    if torch.backends.cudnn.benchmark:
        found += "; torch.backends.cudnn.benchmark = False"
    return f"{found}; in kernels of your own, a fixed order for atomicAdd"


def _tf32(operator: str, flag: str) -> bool:
    if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":  # NVIDIA's libraries heed it above all
        return False
    now = _precision(operator)
    return (
        bool(getattr(_at(operator.partition(".conv")[0]), flag)) if now is None else now == "tf32"
    )


def _named(operator: str, flag: str) -> str:
    if _precision(operator) is None:
        return f"torch.backends.{operator.partition('.conv')[0]}.{flag} = True"
    return f"torch.backends.{operator}.fp32_precision = 'tf32'"


@cache
def products_are_exact(setting: str) -> bool:
    """Returns whether this CPU multiplies float32 matrices exactly under a setting that allows
    less.

    Few processors have instructions that do less. A factor of thirteen bits tells: where factors
    are rounded, its last bit is lost.
    """
    factor = torch.full((256, 256), 1 + 2.0**-12, dtype=torch.float32, device="cpu")
    product = torch.mm(factor, factor).double()
    return bool(product.mean() / 256 > 1 + 2.0**-12)


@cache
def _at(path: str) -> Any:
    node: Any = torch.backends
    for name in filter(None, path.split(".")):
        node = getattr(node, name)
    return node


def _precision(path: str) -> str | None:
    """Returns the `fp32_precision` at this path that takes effect; `None` where there is none."""
    try:
        value: str = _at(path).fp32_precision
    except AttributeError:
        return None
    return value


def _set(path: str, value: str) -> None:
    # flags may be frozen against all changes but those that are put back
    with torch.backends.__allow_nonbracketed_mutation():
        _at(path).fp32_precision = value


def _own() -> dict[str, str]:
    """Returns the `fp32_precision` of every root and operator, without what it inherits."""
    roots = {path: now for path in ROOTS if (now := _precision(path)) is not None}
    inherited = [path for path, now in roots.items() if now != "none"]
    own = {}
    try:
        for path in roots:
            own[path] = str(_precision(path))
            if inherited:
                _set(path, "none")
        for path in OPERATORS:
            if (now := _precision(path)) is not None:
                own[path] = now
    finally:
        if inherited:
            for path in roots:
                _set(path, own.get(path, roots[path]))
    return own


def _older(name: str) -> Any:
    """Returns the value of an older flag; `None` where newer ones were used, so that it is
    unreadable.
    """
    try:
        return (
            torch.get_float32_matmul_precision()
            if name == "matmul"
            else torch.backends.cudnn.allow_tf32
        )
    except RuntimeError:
        return None


@cache
def _places() -> tuple[tuple[str, ...], tuple[Any, ...], tuple[str, ...]]:
    """Returns which settings this PyTorch has: the paths of `fp32_precision`, the objects at these
    paths, and those of `REDUCTIONS`.
    """
    paths = tuple(path for path in (*ROOTS, *OPERATORS) if _precision(path) is not None)
    flags = tuple(name for name in REDUCTIONS if hasattr(torch.backends.cuda.matmul, name))
    return paths, tuple(map(_at, paths)), flags


def _now() -> tuple[Any, ...]:
    """Returns the defaults, and every setting of precision as it takes effect, to be compared."""
    _, places, reductions = _places()
    found: list[Any] = list(map(operator.call, _READ_DEFAULTS))
    found += map(_OWN_PRECISION, places)
    found += map(partial(getattr, torch.backends.cuda.matmul), reductions)
    return (*found, _older("matmul"), _older("cudnn"))


_READ_DEFAULTS = tuple(setting.read for setting in _DEFAULTS)
_OWN_PRECISION = operator.attrgetter("fp32_precision")


class _Settings:
    """The defaults, and every setting of precision, as they are when this is made.

    Where nothing is inherited, each setting is the value that takes effect, and nothing is to be
    put back where none of these values has changed. Elsewhere each setting has to be read by
    itself, which takes changing those that it inherits from.
    """

    def __init__(self) -> None:
        """The settings are read."""
        self.effective = _now()
        own: dict[str, Any] = dict(
            zip(_places()[0], self.effective[len(_DEFAULTS) :], strict=False)
        )
        self.plain = own.get("", "none") == "none" == own.get("cudnn", "none")
        self.own = own if self.plain else _own()

    def put_back(self) -> None:
        """Sets what has changed: the defaults, the newer settings as they are by themselves, the
        flags of sums, and the two older settings, where these are readable.
        """
        if self.plain and _now() == self.effective:
            return
        for setting, value in zip(_DEFAULTS, self.effective, strict=False):
            if setting.read() != value:
                setting.write(value)
        paths, _, reductions = _places()
        cuda: Any = torch.backends.cuda.matmul
        *flags, matmul, convolution = self.effective[len(_DEFAULTS) + len(paths) :]
        for path, value in self.own.items():
            if (matmul is None or convolution is None) and _precision(path) != value:
                _set(path, value)
        if matmul is not None and _older("matmul") != matmul:
            torch.set_float32_matmul_precision(matmul)
        if convolution is not None and _older("cudnn") is not convolution:
            _set_cudnn(allow_tf32=convolution)
        if _own() != self.own:
            for path, value in self.own.items():
                _set(path, value)
        for name, value in zip(reductions, flags, strict=True):
            if getattr(cuda, name) != value:
                setattr(cuda, name, value)


@contextmanager
def kept() -> Iterator[None]:
    """Restores every setting of precision at the end."""
    before = _Settings()
    try:
        yield
    finally:
        before.put_back()


@contextmanager
def highest() -> Iterator[None]:
    """Switches off TF32, products of float32 matrices in bfloat16, and autocast."""
    cuda: Any = torch.backends.cuda.matmul
    with ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(kept())
        if _older("matmul") is not None:
            torch.set_float32_matmul_precision("highest")
        if _older("cudnn") is not None:
            _set_cudnn(allow_tf32=False)
        for path in OPERATORS:
            if _precision(path) in NARROW:
                _set(path, "ieee")
        for name in REDUCTIONS:
            if hasattr(cuda, name):
                setattr(cuda, name, False)
        yield


def _set_cudnn(*, allow_tf32: bool) -> None:
    # set back at the end: that is what the flags may be frozen against
    with torch.backends.__allow_nonbracketed_mutation():
        torch.backends.cudnn.allow_tf32 = allow_tf32
