"""What a check leaves behind in PyTorch: nothing, also when it is interrupted."""

import collections
import dataclasses
import subprocess
import sys
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from frameworks import torch
from scenarios import over_seeds

import adjudge
from adjudge.engine import backend_named
from adjudge.findings import EqualRowsDiffer

pytest.importorskip("torch")
pytestmark = pytest.mark.backend("torch")


@pytest.fixture
def state():
    """Everything global that a check could change, comparable; put back after the test."""
    before = read_state()
    yield read_state
    torch.set_default_dtype(before["dtype"])
    torch.set_default_device(None)
    torch.set_deterministic_debug_mode(before["deterministic"])
    torch.set_grad_enabled(before["grad"])
    torch.set_num_threads(before["threads"])
    torch.set_anomaly_enabled(*before["anomaly"])
    torch.set_flush_denormal(not before["denormal numbers"])
    write_switches(before["switches"])


def read_state():
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "modes of functions": torch.overrides._get_current_function_mode_stack(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "threads": torch.get_num_threads(),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "denormal numbers": torch.tensor(5e-324, dtype=torch.float64).ne(0.0).item(),
        "grad": torch.is_grad_enabled(),
        "switches": read_switches(),
        "random": torch.get_rng_state().numpy().tobytes(),
    }


def read_switches():
    """Autocast, the flags of cuDNN, and in how many threads backward passes run."""
    return (
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.backends.cudnn.deterministic,
        torch.autograd.is_multithreading_enabled(),
    )


def write_switches(values):
    torch.set_autocast_enabled("cpu", values[0])
    torch.set_autocast_dtype("cpu", values[1])
    torch.set_autocast_cache_enabled(values[2])
    # PyTorch's own testing utilities, once imported, forbid to set it by `torch.backends`.
    torch._C._set_cudnn_deterministic(values[3])
    torch.autograd.set_multithreading_enabled(values[4])


def meddling(then):
    """A function that changes every global setting, and then computes or raises."""

    def f(x):
        torch.rand(3)
        torch.set_default_dtype(torch.float16)
        torch.set_default_device("meta")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.set_anomaly_enabled(True, False)
        torch.set_flush_denormal(True)
        write_switches((True, torch.float16, False, True, False))
        return then(x)

    return f


class Stopped(BaseException):
    """Stands for KeyboardInterrupt, which a test runner would take for its own."""


def stop_with(error):
    def then(x):
        torch.set_grad_enabled(False)
        raise error

    return then


OPTIONS = [
    {},
    {"fast_mode": True},
    {"check_batched_grad": True},
    {"check_forward_ad": True, "check_batched_forward_grad": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_global_settings_and_random_state_are_as_before(gradcheck, state, x, options):
    before = state()

    gradcheck(meddling(torch.sin), (x,), **options)

    assert before == state()


@pytest.mark.parametrize("asked", [True, False])
def test_a_batch_whose_own_rule_draws_for_each_row_cannot_be_compared(asked):
    class Rows(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return x * torch.rand(x.shape[0], *(1,) * (x.ndim - 1), dtype=x.dtype), 0

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            return Rows.apply(w * x.cos())

    x = torch.tensor([0.3, 0.8], dtype=torch.float64, requires_grad=True)
    report = adjudge.examine(
        Sine.apply, x, modes=["R"], check_batched_grad=asked, seed=0, blame=False
    )

    (found,) = [f for f in report.findings if f.status is adjudge.Status.NONDETERMINISTIC]
    assert isinstance(found.detail, EqualRowsDiffer)
    assert found.note is not asked


@pytest.mark.parametrize("asked", [True, False])
def test_a_batch_has_the_same_random_numbers_in_each_row(asked):
    x = torch.tensor([0.3, 0.8], dtype=torch.float64)

    def noisy(x):
        torch.manual_seed(0)
        return x.sin() * torch.rand_like(x)

    report = adjudge.examine(
        noisy, x, modes=["F"], check_forward_ad=True, check_batched_forward_grad=asked, seed=0
    )

    assert report.verdict is adjudge.Verdict.PASS, str(report)
    assert all(f.status is not adjudge.Status.NONDETERMINISTIC for f in report.findings)


@pytest.mark.parametrize("options", OPTIONS[:3])
def test_a_second_order_check_leaves_them_as_before(gradgradcheck, state, x, options):
    before = state()

    gradgradcheck(meddling(torch.sin), (x,), **options)

    assert before == state()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(1), Stopped()])
def test_an_exception_leaves_them_as_before(gradcheck, state, x, error):
    before = state()

    with pytest.raises(type(error)):
        gradcheck(meddling(stop_with(error)), (x,))

    assert before == state()


def test_an_exception_in_the_backward_leaves_them_as_before(gradcheck, rule, state, x):
    before = state()
    f = rule(meddling(torch.sin), lambda x, w: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        gradcheck(f, (x,))

    assert before == state()


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_gradients_are_checked_where_recording_is_off(gradcheck, scaled_sin, x, mode):
    with getattr(torch, mode)():
        assert gradcheck(torch.sin, (x,))
        assert not gradcheck(scaled_sin(-1.0), (x,), raise_exception=False)
        assert not torch.is_grad_enabled()


def test_an_exception_at_the_third_call_leaves_the_input_bit_identical(gradcheck):
    array = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64).numpy()
    x = torch.from_numpy(array).requires_grad_()
    before, calls = array.tobytes(), []

    def f(x):
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("at the third call")
        return x.sin()

    with pytest.raises(ValueError, match="at the third call") as caught:
        gradcheck(f, (x,))

    assert before == array.tobytes()
    assert "in evaluation 3 of the function" in caught.value.__notes__[0]


def test_flags_and_grad_of_the_inputs_are_untouched(gradcheck, x):
    y = torch.ones(3, dtype=torch.float64)
    x.grad = torch.full_like(x, 7.0)
    version = x._version

    gradcheck(lambda x, y: x * y, (x, y), check_batched_grad=True)

    assert x.requires_grad
    assert x.is_leaf
    assert not y.requires_grad
    assert torch.equal(torch.full_like(x, 7.0), x.grad)
    assert version == x._version


def test_an_input_with_history_is_checked_and_keeps_it(gradcheck, x):
    y = 2 * x

    assert gradcheck(torch.sin, (y,))
    assert y.grad_fn is not None
    assert x.grad is None


def test_no_memory_is_shared_with_the_function(gradcheck, x):
    constant = torch.ones(3, dtype=torch.float64)
    inputs = (x, constant)
    seen = set()

    def f(x, constant):
        seen.update({x.data_ptr(), constant.data_ptr()})
        return x * constant

    gradcheck(f, inputs, check_forward_ad=True)

    assert not seen & {tensor.data_ptr() for tensor in inputs}


def test_hooks_and_other_graphs_of_the_user_are_not_run(gradcheck, x):
    runs = []
    x.register_hook(runs.append)
    loss = (x**2).sum()

    gradcheck(torch.sin, (x,))

    assert [] == runs
    loss.backward()
    assert 1 == len(runs)


def test_a_fresh_seed_draws_nothing_from_pytorch(x):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)

    adjudge.gradgradcheck(torch.sin, (x,), check_batched_grad=True)

    assert torch.equal(expected, torch.rand(3))


def test_settings_that_the_user_made_stay(gradcheck, state, x):
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_anomaly_enabled(True, False)
    torch.set_flush_denormal(True)
    before = state()

    gradcheck(torch.sin, (x,))

    assert before == state()


class Model:
    """An object that is no module, and holds one."""

    def __init__(self, norm):
        self.norm = norm

    def loss(self, x):
        return self.norm(x).sin()

    def __call__(self, x):
        return self.norm(x)


def by_default(norm):
    def f(x, norm=norm):
        return norm(x)

    return f


def through_a_helper(norm):
    def helper(x):
        return norm(x)

    return lambda x: helper(x)


HOLDERS = {
    "the module": lambda norm: norm,
    "a closure": lambda norm: lambda x: norm(x),
    "a helper": through_a_helper,
    "a list": lambda norm: (lambda norms: lambda x: norms[0](x))([norm]),
    "a set": lambda norm: (lambda norms: lambda x: next(iter(norms))(x))({norm}),
    "a default": by_default,
    "a partial": lambda norm: partial(lambda norm, x: norm(x), norm),
    "a method": lambda norm: Model(norm).loss,
    "an object": lambda norm: Model(norm),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is:DeprecationWarning")
@pytest.mark.parametrize("made", ["with parameters", "without", "scripted", "inside of another"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_running_statistics_are_as_before(holder, made):
    norm = torch.nn.BatchNorm1d(3, affine=made != "without").double()
    if made == "scripted":
        norm = torch.jit.script(norm)
    if made == "inside of another":
        norm = torch.nn.Sequential(torch.nn.Linear(3, 3, dtype=torch.float64), norm)
    x = torch.linspace(0.5, 2, 12, dtype=torch.float64).reshape(4, 3).sin()
    norm(x)
    kept = [(buffer, buffer.data_ptr(), buffer.clone()) for buffer in norm.buffers()]
    assert len(kept) == 3
    f, calls = HOLDERS[holder](norm), []

    def raising(x):
        calls.append(f(x))
        if len(calls) == 3:
            raise ZeroDivisionError
        return calls[-1]

    report = adjudge.examine(f, x, seed=0)
    assert report.verdict is adjudge.Verdict.PASS, str(report)
    with pytest.raises(ZeroDivisionError):
        adjudge.examine(raising, x, seed=0)

    for buffer, place, before in kept:
        assert torch.equal(buffer, before)
        assert buffer.data_ptr() == place
    norm(x)
    assert not torch.equal(kept[0][0], kept[0][2])


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.trace_method` is:DeprecationWarning")
def test_nothing_is_said_of_what_a_traced_module_was_made_of():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).double()
    x = torch.linspace(0.5, 2, 3, dtype=torch.float64)
    traced = torch.jit.trace(module, x)
    report = adjudge.examine(lambda x: traced(x), x, seed=0)
    assert report.verdict is adjudge.Verdict.PASS, str(report)
    assert adjudge.Status.MUTATES_INPUT not in {one.status for one in report.findings}


class Binding(torch.nn.Module):
    """A module whose call binds tensors anew, and draws from a generator of its own."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(3, dtype=torch.float64))
        self.register_buffer("last", None)
        self.attribute = torch.zeros(2)
        self.generator = torch.Generator().manual_seed(0)
        self.calls = 0

    def forward(self, x):
        torch.rand(3, generator=self.generator)
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        self.last, self.attribute, self.new = x, x.sin(), x.cos()
        self.calls += 1
        return x.sin() * self.weight


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("verb", [adjudge.examine, adjudge.blame])
def test_what_a_module_binds_anew_is_as_before(holder, verb):
    module = Binding()
    whole = torch.nn.Sequential(torch.nn.Tanh(), module)
    f, calls = HOLDERS[holder](whole), []
    x = torch.linspace(0.5, 2, 12, dtype=torch.float64).reshape(4, 3)
    weight, mean, attribute = module.weight, module.mean, module.attribute
    state = module.generator.get_state()

    def raising(x):
        calls.append(f(x))
        if len(calls) == 3:
            raise ZeroDivisionError
        return calls[-1]

    assert verb(f, x, seed=0)
    with pytest.raises(ZeroDivisionError):
        verb(raising, x, seed=0)

    assert module.calls == 0
    assert module.weight is weight
    assert module.attribute is attribute
    assert module.last is None
    assert module.mean is mean
    assert mean.tolist() == [0, 0, 0]
    assert not hasattr(module, "new")
    assert torch.equal(module.generator.get_state(), state)
    module(x)
    assert module.mean is not mean


def recomputed(f, raises):
    """f under a checkpoint whose backward pass runs another one, which adds up gradients in what f
    holds.
    """

    class Recomputed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            with torch.no_grad():
                return f(x)

        @staticmethod
        def backward(ctx, w):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = f(x)
            torch.autograd.backward(y, w)
            if raises:
                raise ValueError("after the inner pass")
            return x.grad

    return Recomputed.apply


@pytest.mark.parametrize("given", [None, 1.0], ids=["no gradient", "a gradient"])
@pytest.mark.parametrize("held", ["closure", "module", "inside f"])
@pytest.mark.parametrize("raises", [False, True])
def test_gradients_of_parameters_are_as_they_were(held, given, raises):
    layer = torch.nn.Linear(3, 2).double()
    before = []
    for one in layer.parameters():
        one.grad = None if given is None else torch.full_like(one, given)
        before.append(one.grad)

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return recomputed(lambda x: self.layer(x).tanh(), raises)(x)

    def inside(x):
        with torch.enable_grad():
            layer(x.detach()).sum().backward()
        if raises:
            raise ValueError("after the inner pass")
        return x.sin()

    functions = {
        "closure": lambda x: recomputed(layer, raises)(x),
        "module": Module(),
        "inside f": inside,
    }
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match="inner pass") if raises else nullcontext():
        adjudge.examine(functions[held], x, seed=0, blame=False)

    for one, grad in zip(layer.parameters(), before, strict=True):
        assert one.grad is grad
        assert grad is None or bool((grad == given).all())


def test_warnings_that_are_errors_make_no_rule_wrong():
    # PyTorch loads its forward mode, with a warning, once in a process
    script = (
        "import torch, adjudge\n"
        "report = adjudge.examine(lambda x: x * 2, torch.ones(3, dtype=torch.float64), order=1)\n"
        "assert report, str(report)\n"
    )
    command = [sys.executable, "-W", "error::DeprecationWarning:torch", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def frozen(module):
    for parameter in module.parameters():
        parameter.requires_grad_(False)


CHANGES = {
    "trained or not": lambda module: module.eval(),
    "frozen parameters": frozen,
    "a hook": lambda module: module.register_forward_hook(lambda *_: None),
    "a counter": lambda module: setattr(module, "calls", getattr(module, "calls", 0) + 1),
    "the last loss": lambda module: setattr(module[0], "last", 1.5),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("raises", [False, True])
def test_what_a_function_does_to_a_module_it_closes_over_is_undone(change, raises):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).double()

    def marks():
        marked = [parameter.requires_grad for parameter in module.parameters()]
        kept = ("training", "calls", "last")
        held = [{k: v for k, v in vars(part).items() if k in kept} for part in module.modules()]
        return marked, held, [len(part._forward_hooks) for part in module.modules()]

    def f(x):
        CHANGES[change](module)
        if raises:
            raise ZeroDivisionError
        return module(x)

    before = marks()
    with pytest.raises(ZeroDivisionError) if raises else nullcontext():
        report = adjudge.examine(f, torch.ones(2, 3, dtype=torch.float64), seed=0)
        assert report.verdict is adjudge.Verdict.PASS, str(report)

    assert marks() == before
    CHANGES[change](module)
    assert marks() != before


WRITES = {
    "clamp": lambda w: w.clamp_(-0.5, 0.5),
    "decay": lambda w: w.mul_(0.999),
    "data": lambda w: w.data.clamp_(-0.5, 0.5),
    "another tensor": lambda w: setattr(w, "data", w.data.clamp(-0.5, 0.5)),
    "max_norm": lambda w: torch.nn.functional.embedding(torch.tensor([0, 1]), w, max_norm=0.5),
    "mark": lambda w: w.requires_grad_(False),
}


# The weights of a module that is f itself are inputs, which are marked for the check.
WRITTEN = [(one, two) for one in HOLDERS for two in WRITES if (one, two) != ("the module", "mark")]


@pytest.mark.parametrize(("holder", "write"), WRITTEN)
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_weights_that_f_writes_into_are_as_before(holder, write, factor, scaled_sin):
    class Writing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(
                torch.linspace(-1, 1, 9, dtype=torch.float64).view(3, 3)
            )

        def forward(self, x):
            with torch.no_grad():
                WRITES[write](self.weight)
            return scaled_sin(factor)(x @ self.weight.detach().clamp(-0.1, 0.1))

    module = Writing()
    weight, place = module.weight, module.weight.data_ptr()
    before = weight.detach().clone()
    x = torch.linspace(0.5, 2, 6, dtype=torch.float64).reshape(2, 3)
    report = adjudge.examine(HOLDERS[holder](module), x, seed=0, blame=False)

    # The weights of a module that is f itself are inputs, into which it must not write.
    right = factor == 1.0 and holder != "the module"
    assert report.verdict is (adjudge.Verdict.PASS if right else adjudge.Verdict.FAIL), str(report)
    assert module.weight is weight
    assert weight.data_ptr() == place
    assert weight.requires_grad
    assert torch.equal(weight, before)


class Remembering(torch.nn.Module):
    """A module whose value depends on its earlier calls, by all kinds of things that it holds."""

    def __init__(self, p=0.0):
        super().__init__()
        self.register_buffer("written", torch.ones(3, dtype=torch.float64))
        self.register_buffer("bound", torch.ones(3, dtype=torch.float64))
        self.calls, self.drop = 1, torch.nn.Dropout(p)

    def forward(self, x):
        self.written.mul_(0.75)
        self.bound = 0.75 * self.bound
        self.calls += 1
        return self.drop(x.sin()) * (self.written + self.bound) * self.calls


def last_slope(factor):
    def scaled(gradient):
        return gradient * torch.tensor([1.0, 1.0, factor], dtype=gradient.dtype)

    return scaled


@pytest.mark.parametrize(
    ("modes", "p", "factor"),
    [
        (["R", "F"], 0.0, 1.0),
        (["R", "F"], 0.5, 1.0),
        (["RR", "FR"], 0.0, 1.0),
        (["R"], 0.0, 1.001),
        (["R"], 0.5, 1.001),
    ],
)
@over_seeds(10)
def test_a_function_that_remembers_its_calls_is_judged_as_it_was_before_them(
    seeds, modes, p, factor
):
    for seed in seeds:
        module = Remembering(p)

        def f(x, module=module):
            if x.requires_grad:
                x = x * 1.0
                x.register_hook(last_slope(factor))
            return module(x)

        x = torch.linspace(0.5, 2, 3, dtype=torch.float64)
        report = adjudge.examine(f, (x,), modes=modes, seed=seed)
        assert report.verdict.name == ("PASS" if factor == 1.0 else "FAIL"), report
        statuses = [one.status.name for one in report.findings]
        assert "NONDETERMINISTIC" not in statuses
        assert "MUTATES_INPUT" in statuses
        assert module.calls == 1
        assert torch.equal(module.written, torch.ones(3, dtype=torch.float64))
        assert torch.equal(module.bound, torch.ones(3, dtype=torch.float64))


class FirstOfAll(torch.nn.Module):
    """A running mean that begins with the first batch: two calls at one x have one value."""

    mean = None

    def forward(self, x):
        mean = x.mean(0) if self.mean is None else 0.9 * self.mean + 0.1 * x.mean(0)
        self.mean = mean.detach()
        return (x - mean).sin()


class Largest(torch.nn.Module):
    """The largest number so far, and a buffer that is written into and saved for the derivative."""

    def __init__(self):
        super().__init__()
        self.register_buffer("largest", torch.zeros((), dtype=torch.float64))
        self.register_buffer("decay", torch.ones((), dtype=torch.float64))

    def forward(self, x):
        largest = torch.maximum(self.largest.clone(), x.abs().max())
        self.largest.copy_(largest.detach())
        self.decay.mul_(0.5)
        return x / largest * self.decay


class Cache(torch.nn.Module):
    """A cache of keys, in a list."""

    def __init__(self):
        super().__init__()
        self.keys = []

    def forward(self, x):
        self.keys.append(x)
        keys = torch.cat(self.keys)
        return torch.softmax(x @ keys.T, -1) @ keys


class Unlearned(torch.nn.Module):
    """A parameter that is not learned, and an array in an attribute."""

    def __init__(self):
        super().__init__()
        self.centre = torch.nn.Parameter(torch.ones(4, dtype=torch.float64), requires_grad=False)
        self.scales = {"of x": torch.ones(4, dtype=torch.float64)}

    def forward(self, x):
        found = (x - self.centre.clone()) ** 2 * self.scales["of x"].clone()
        with torch.no_grad():
            self.centre.lerp_(x.mean(0), 0.2)
            self.scales["of x"].mul_(1.1)
        return found


class Backward(torch.nn.Module):
    """A rule whose derivative changes what f reads."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.linspace(1, 2, 4, dtype=torch.float64))

    def forward(self, x):
        holder = self

        class Rule(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x, holder.scale.clone())
                return (x * holder.scale).sin()

            @staticmethod
            def backward(ctx, w):
                x, scale = ctx.saved_tensors
                holder.scale.mul_(1.1)
                return w * (x * scale).cos() * scale

        return Rule.apply(x)


class Shared(torch.nn.Module):
    """Two buffers that share memory: what is written into one is read from the other."""

    def __init__(self):
        super().__init__()
        self.register_buffer("whole", torch.linspace(1, 2, 8, dtype=torch.float64))
        self.register_buffer("part", self.whole[:4])

    def forward(self, x):
        before = self.part.clone()
        self.whole.mul_(0.5)
        return (x * self.part.clone()).sin() * (before - self.part.clone())


class Frozen(dict):
    """A dictionary that refuses what is put into it by name."""

    def __setitem__(self, name, value):
        raise TypeError(f"{name} is frozen")

    def update(self, *given, **named):
        raise TypeError("all is frozen")


@dataclasses.dataclass
class Statistics:
    mean: object
    count: int = 1


Pair = collections.namedtuple("Pair", "mean count")


class Sealed(tuple):
    """A tuple that is made of two things, and of no list of them."""

    def __new__(cls, first, second):
        return super().__new__(cls, (first, second))


class Resized(torch.nn.Module):
    """A buffer that grows."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.ones(1, dtype=torch.float64))

    def forward(self, x):
        self.seen.resize_(len(self.seen) + 1)[-1] = 1.0
        return x.sin() * self.seen.sum()


class Within(torch.nn.Module):
    """What a call changes stands in a container that the module holds, in `state`."""

    def __init__(self, state, change):
        super().__init__()
        self.state, self.change = state(torch.ones(2, dtype=torch.float64)), change

    def forward(self, x):
        return x.sin() * self.change(self.state)


def grown(array):
    return (array.mul_(1.5) if isinstance(array, torch.Tensor) else array.__imul__(1.5))[0].item()


def counted(statistics):
    statistics.count += 1
    statistics.mean = statistics.mean * 1.5
    return statistics.mean[0] * statistics.count


def oldest(cache):
    name = next(iter(cache))
    cache[name] = cache.pop(name)
    return cache[name]


def longest(cache):
    """Its values are all alike."""
    name = next(iter(cache))
    cache[name] = cache.pop(name)
    return len(name)


def dropped(cache):
    found = cache.pop("first", 3.0)
    return found * next(iter(cache.values()))


def another(seen):
    (seen.add if isinstance(seen, set) else seen.append)(len(seen))
    return len(seen)


def raised(counts, name):
    dict.__setitem__(counts, name, counts[name] + 1)
    return counts[name]


WITHIN = {
    "a list in a dictionary": (lambda array: {"of x": [array]}, lambda s: grown(s["of x"][0])),
    "an empty list in a list": (lambda array: [[]], lambda s: another(s[0])),
    "a tuple": (lambda array: (array, 1), lambda s: grown(s[0])),
    "tuples in a list": (lambda array: [((array,), 2)], lambda s: grown(s[0][0][0])),
    "a list in a tuple of its own": (lambda array: Sealed([1], array), lambda s: another(s[0])),
    "a name that is dropped": (lambda array: {"first": 1.5, "second": 2.0}, dropped),
    "a named tuple": (lambda array: Pair(array, 1), lambda s: grown(s.mean)),
    "a dataclass": (Statistics, counted),
    "dataclasses in a list": (lambda array: [Statistics(array)], lambda s: counted(s[0])),
    "a set": (lambda array: {-1}, another),
    "a deque in a tuple": (lambda array: (collections.deque([1], 9),), lambda s: another(s[0])),
    "an array of NumPy": (lambda array: array.numpy().copy(), grown),
    "bytes of NumPy": (
        lambda array: np.array([b"a", b"b"]),
        lambda s: 1 + (s.put(0, bytes([s[0][0] + 1])) or s[0][0]),
    ),
    "the order of values": (lambda array: {"first": 1.0, "second": 2.0}, oldest),
    "the order of names": (lambda array: {"1": 0, "22": 0, "333": 0}, longest),
    "a counter": (lambda array: collections.Counter(calls=1), lambda s: raised(s, "calls")),
    "a frozen dictionary": (lambda array: Frozen(calls=1), lambda s: raised(s, "calls")),
}
STATE = [FirstOfAll, Largest, Cache, Unlearned, Backward, Shared, Resized]
STATE += [pytest.param(partial(Within, *one), id=name) for name, one in WITHIN.items()]


def state_of(module):
    named = {**dict(module.named_parameters()), **dict(module.named_buffers()), **vars(module)}
    return repr(
        {name: (id(one), str(one)) for name, one in sorted(named.items()) if name[0] != "_"}
    )


@pytest.mark.parametrize("factor", [1.0, 1.001])
@pytest.mark.parametrize("holder", ["the module", "a closure"])
@pytest.mark.parametrize("kind", STATE)
@over_seeds(10)
def test_no_state_of_a_module_moves_between_evaluations(seeds, kind, holder, factor):
    module = kind()
    before = state_of(module)
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, x):
            if x.requires_grad and factor != 1:
                x = x * 1.0
                x.register_hook(lambda w: w * factor)
            return self.module(x)

    f = HOLDERS[holder](Scaled())
    for seed in seeds:
        report = adjudge.examine(f, (x,), modes=["R"], seed=seed, blame=False)
        assert report.verdict.name == ("PASS" if factor == 1 else "FAIL"), report
        assert state_of(module) == before


def test_a_buffer_of_sixteen_bits_is_put_back_beside_exact_references():
    class Narrow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(3, dtype=torch.bfloat16))

        def forward(self, x):
            self.scale.mul_(1.5)
            return x.sin() * self.scale.clone()

    module = Narrow()
    x = torch.linspace(0.5, 2, 3, dtype=torch.float64)
    report = adjudge.examine(module, (x,), reference="exact", seed=0)
    assert report.verdict is adjudge.Verdict.PASS, report
    assert module.scale.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "complex128"])
def test_an_array_of_the_user_can_be_resized_after_a_check(dtype):
    x = torch.linspace(0.5, 2, 3, dtype=getattr(torch, dtype))
    for reference in (None, "exact") if x.dtype.is_floating_point else (None,):
        assert adjudge.examine(torch.sin, (x,), reference=reference, seed=0)
    assert x.resize_(9).shape == (9,)


def test_a_lazy_module_that_f_closes_over_can_be_called_afterwards():
    module = torch.nn.LazyLinear(3, dtype=torch.float64)
    x = torch.linspace(0.5, 2, 4, dtype=torch.float64)

    assert adjudge.examine(lambda x: module(x), (x,), seed=0)
    assert module(x).shape == (3,)


def test_a_function_that_remembers_its_calls_elsewhere_differs_from_run_to_run():
    calls = []

    def f(x):
        calls.append(0)
        return x.sin() * len(calls)

    report = adjudge.examine(f, (torch.linspace(0.5, 2, 3, dtype=torch.float64),), seed=0)
    assert report.verdict is adjudge.Verdict.FAIL
    assert [one.status.name for one in report.findings] == ["NONDETERMINISTIC"]


def test_copies_share_memory_as_their_arrays_do_unless_it_is_far_larger():
    arrays = backend_named("torch").arrays
    whole = torch.nn.Parameter(torch.arange(8.0), requires_grad=False)
    other, large = torch.ones(3), torch.zeros(1000)

    copies = arrays.copies((whole, other, whole[2:4], large[:2], large[1:3]))
    copies[0][2:] = 7
    copies[3][1] = 5

    assert isinstance(copies[0], torch.nn.Parameter)
    assert [one.tolist() for one in copies[1:]] == [[1, 1, 1], [7, 7], [0, 5], [0, 0]]
    assert torch.equal(whole.data, torch.arange(8.0))
    assert not large.any()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_module_may_hold_arrays_without_values_or_shape():
    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("meta", torch.zeros(3, device="meta"))
            self.register_buffer("small", torch.ones(3).to(torch.float8_e4m3fn))
            self.nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
            self.sparse = torch.eye(3).to_sparse()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x.sin() * self.calls

    module = Holding()

    assert adjudge.examine(lambda x: module(x), torch.linspace(0.5, 2, 3, dtype=torch.float64))
    assert module.calls == 0


class Untouched(dict):
    """A dictionary that nobody may look into."""

    def values(self):
        raise AssertionError("looked into")

    items = values


def test_what_stands_beside_a_large_container_is_put_back():
    """A container of more entries than are looked into is left alone, as is one that comes to more
    with those before it, and others are not.
    """

    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            large = Untouched({str(k): k for k in range(20_000)})
            more = Untouched({str(k): k for k in range(6_000)})
            self.words = {"all": large, "some": [0] * 6_000, "more": more, "known": [1.0]}
            self.drawn = {"all": [large], "own": [torch.Generator()]}

        def forward(self, x):
            self.words["known"][0] *= 1.5
            draws = torch.rand(3, generator=self.drawn["own"][0])
            return x.sin() * self.words["known"][0] * (1 + draws.double())

    module = Holding()
    state = module.drawn["own"][0].get_state()
    x = torch.linspace(0.5, 2, 3, dtype=torch.float64)
    report = adjudge.examine(lambda x: module(x), (x,), seed=0)
    assert report.verdict is adjudge.Verdict.PASS, report
    assert module.words["known"] == [1.0]
    assert torch.equal(module.drawn["own"][0].get_state(), state)
