"""Training loops that are watched: what is found in them, and that nothing of them changes."""

import importlib
from functools import partial

import numpy as np
import pytest

import adjudge
from adjudge import Verdict
from adjudge.engine import Watcher
from adjudge.errors import Source, source_of


class Clock:
    """The time, which passes between the steps of a loop and nowhere else."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watching(clock):
    """A spot check that has time for every call."""
    return partial(adjudge.spotcheck, share=0.99, seed=0, clock=clock)


@pytest.fixture(autouse=True)
def own_mistakes_are_raised(monkeypatch):
    """A program that is watched goes on whatever recording it raises. Here only the code of others
    may be what raises.
    """
    before = Watcher.unrecorded

    def unrecorded(self, rule, error):
        if source_of(error) is Source.ADJUDGE:
            raise error
        before(self, rule, error)

    monkeypatch.setattr(Watcher, "unrecorded", unrecorded)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def norm(torch):
    """A rule that is wrong where an entry is large: in a branch that only real data takes."""

    class Norm(torch.autograd.Function):
        large = 6.0

        @staticmethod
        def forward(ctx, x, weight):
            length = x.norm(dim=-1, keepdim=True)
            ctx.save_for_backward(x, length, weight)
            return weight * x / length

        @staticmethod
        def backward(ctx, w):
            x, length, weight = ctx.saved_tensors
            v = w * weight
            right = v / length - x * (v * x).sum(-1, keepdim=True) / length**3
            return (right if x.abs().max() < Norm.large else v / length), (w * x / length).sum(0)

    return Norm


def network(torch, rule):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(6))

        def forward(self, x):
            return rule.apply(x, self.weight)

    parts = [torch.nn.Linear(4, 6), Layer(), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.2)]
    return torch.nn.Sequential(*parts, torch.nn.Tanh(), torch.nn.Linear(6, 1))


@pytest.fixture
def train(torch, clock):
    def train(rule, steps=12, outlier=None, wrapped=lambda net: net):
        """All that a loop of training leaves behind."""
        torch.manual_seed(1)
        net, calls = network(torch, rule), []
        net[1].register_forward_hook(lambda *_: calls.append("forward"))
        net[1].register_full_backward_hook(lambda *_: calls.append("backward"))
        net[1].weight.register_hook(lambda w: calls.append(w.clone()))
        optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
        f, left = wrapped(net), []
        try:
            for k in range(steps):
                clock.now += 1000
                x = torch.randn(8, 4) * (30 if k == outlier else 1)
                optimizer.zero_grad()
                loss = f(x).square().mean()
                loss.backward()
                left += [loss.detach(), *(p.grad.clone() for p in net.parameters())]
                optimizer.step()
        except Interrupted:
            left.append("interrupted")
        return [*left, *calls, *net.state_dict().values(), torch.get_rng_state()]

    return train


class Interrupted(Exception):
    """What a user's code raises."""


def same(one, two):
    return [np.asarray(a).tobytes() for a in one] == [np.asarray(b).tobytes() for b in two]


@pytest.mark.parametrize(("share", "all_of_them"), [(1, True), (0.99, False)])
def test_a_share_of_one_judges_every_call_of_a_loop_that_takes_no_time(norm, share, all_of_them):
    torch = importlib.import_module("torch")
    x, weight = torch.randn(3, 6, dtype=torch.float64), torch.ones(6, dtype=torch.float64)

    with adjudge.spotcheck(share=share, seed=0, clock=lambda: 0.0) as watch:
        for factor in (0.1, 1.0, 30.0):
            norm.apply(factor * x.requires_grad_(), weight).sum().backward()

    (rule,) = watch.report.rules
    assert rule.calls == 3
    assert rule.judged == (3 if all_of_them else 0)
    assert (watch.report.verdict is Verdict.FAIL) is all_of_them


def test_a_branch_that_only_real_data_takes_is_found(torch, norm, train, watching):
    x, weight = torch.randn(3, 6, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    assert adjudge.examine(norm.apply, (x, weight), seed=0)
    told = []

    with watching(callback=told.append) as watch:
        train(norm, outlier=7)

    (rule,) = watch.report.at_fault
    assert rule is told[0]
    assert rule.judged == rule.calls == 12
    assert rule.fault.wrong < 12
    assert (rule.fault.rule, rule.fault.file) == ("Norm.backward", __file__)
    assert (rule.step.module, rule.step.place.file) == ("1", __file__)
    assert float(rule.step.operands[0].abs().max()) >= norm.large
    assert "first seen wrong at tests/backends/test_spotcheck.py:" in str(watch.report)


@pytest.mark.parametrize(  # where every step is judged, the rules are among them
    ("seed", "every"), [*((seed, True) for seed in range(10)), (0, False), (1, False)]
)
def test_nothing_is_accused_in_a_right_program(norm, train, watching, seed, every):
    norm.large = float("inf")

    with watching(seed=seed, every=every) as watch:
        train(norm, outlier=3, steps=6)

    assert watch.report.at_fault == []
    assert watch.report.rules
    assert sum(rule.verdicts.get(Verdict.PASS, 0) for rule in watch.report.rules) >= 6


def test_a_wrong_gradient_of_a_parameter_is_found(norm, train, watching):
    norm.large = float("inf")
    right = norm.backward

    def backward(ctx, w):
        of_x, of_weight = right(ctx, w)
        return of_x, 1.01 * of_weight

    norm.backward = staticmethod(backward)
    with watching() as watch:
        train(norm)

    (rule,) = watch.report.at_fault
    assert rule.fault.line == backward.__code__.co_firstlineno
    assert rule.report.entries[0].input == "inputs[1]"


def checkpointed(**options):
    def wrapped(net):
        checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint
        return lambda x: checkpoint(net, x.requires_grad_(), **options)

    return wrapped


def under_autocast(net):
    autocast = importlib.import_module("torch").autocast

    def f(x):
        with autocast("cpu", dtype=importlib.import_module("torch").bfloat16):
            return net(x).float()

    return f


def compiled(net):
    return importlib.import_module("torch").compile(net, backend="eager")


def penalised(net):
    torch = importlib.import_module("torch")

    def f(x):
        y = net(x.requires_grad_())
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y + 1e-3 * g.square().sum()

    return f


def interrupted(net):
    calls = []

    def f(x):
        calls.append(1)
        if len(calls) == 5:
            net[1].register_forward_hook(raises)
        return net(x)

    return f


def raises(*_):
    raise Interrupted


WRAPPED = {
    "plain": lambda net: net,
    "checkpoint": checkpointed(use_reentrant=False),
    "reentrant": checkpointed(use_reentrant=True),
    "autocast": under_autocast,
    "compiled": compiled,
    "penalised": penalised,
    "interrupted": interrupted,
}


@pytest.mark.parametrize(
    ("name", "every"),
    # PyTorch compiles anew for each step that is watched: what it compiled is one rule or many
    [*((name, name != "compiled") for name in WRAPPED), ("plain", False)],
)
@pytest.mark.filterwarnings("ignore")  # those of torch.compile
def test_the_loop_is_the_same_to_the_last_bit(torch, norm, train, watching, name, every):
    apply, call = torch.autograd.Function.apply, torch.nn.Module.__call__
    norm.large = float("inf")
    without = train(norm, steps=6, wrapped=WRAPPED[name])

    with watching(every=every) as watch:
        watched = train(norm, steps=6, wrapped=WRAPPED[name])

    assert same(without, watched)
    assert not torch.is_autocast_enabled("cpu")
    assert torch.autograd.Function.apply == apply
    assert torch.nn.Module.__call__ is call
    assert watch.report.at_fault == [], str(watch.report)
    if name != "compiled":
        assert sum(rule.judged for rule in watch.report.rules) >= 4
    if name == "interrupted":
        assert "interrupted" in without


def test_an_exception_that_leaves_the_block_leaves_nothing_behind(torch, norm, watching):
    apply, call = torch.autograd.Function.apply, torch.nn.Module.__call__

    with pytest.raises(Interrupted), watching(every=True):
        raise Interrupted

    assert torch.autograd.Function.apply == apply
    assert torch.nn.Module.__call__ is call


def test_calls_of_which_no_derivative_is_taken_are_not_judged(torch, norm, watching):
    x, weight = torch.randn(2, 6), torch.ones(6)

    with watching() as watch:
        norm.apply(x, weight)
        with torch.no_grad():
            norm.apply(x, weight.requires_grad_())

    assert not watch.report.rules


def test_a_custom_operator_is_judged_as_a_rule_is(torch, clock, watching):
    @torch.library.custom_op("adjudge_spotcheck::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    def backward(ctx, w):
        return 3 * w * ctx.saved_tensors[0] ** (2 if cube.right else 1)

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    cube.register_autograd(backward, setup_context=setup)
    x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)

    for cube.right in (True, False):
        with watching() as watch:
            clock.now += 1000
            cube(x).sum().backward()

        (rule,) = watch.report.rules
        assert rule.name == "adjudge_spotcheck.cube.default"
        assert rule.verdict is (Verdict.PASS if cube.right else Verdict.FAIL)
        assert (rule.fault.file, rule.fault.line) == (__file__, backward.__code__.co_firstlineno)


def test_calls_under_a_transform_are_listed(torch, watching):
    class Twice(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return 2 * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            return None

        @staticmethod
        def backward(ctx, w):
            return 2 * w

    with watching() as watch:
        torch.func.grad(lambda x: Twice.apply(x).sum())(torch.ones(2))

    assert "not judged: calls of Twice: made under a transform of torch.func (" in str(watch.report)
    assert watch.report.verdict is Verdict.INCONCLUSIVE


def test_a_rule_that_depends_on_the_default_device_is_run_again_with_it(torch, clock, watching):
    class Shifted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + torch.ones(1).is_meta

        @staticmethod
        def backward(ctx, w):
            return w

    x = torch.ones(2, requires_grad=True)
    torch.set_default_device("meta")
    try:
        with watching() as watch:
            clock.now += 1000
            Shifted.apply(x)
    finally:
        torch.set_default_device(None)

    assert watch.report, str(watch.report)


def test_only_the_named_modules_are_looked_at(norm, train, watching):
    with watching(every=True, modules=["3", "4"]) as watch:
        train(norm)

    assert {rule.step.module for rule in watch.report.rules if rule.step} == {"3", "4"}


def test_a_gradient_that_is_cut_on_purpose_is_not_accused(torch, clock, watching):
    class Stops(torch.nn.Module):
        def forward(self, x):
            return x * x.detach()

    with watching(every=True) as watch:
        for _ in range(5):
            clock.now += 1000
            Stops()(torch.ones(3, requires_grad=True)).sum().backward()

    assert watch.report.at_fault == []
    assert {rule.name for rule in watch.report.rules} >= {"torch.Tensor.detach", "torch.Tensor.mul"}


class Silent:
    """An argument without a text."""

    def __str__(self):
        raise Interrupted


@pytest.fixture
def sine(torch):
    """A right rule, which takes an argument that is no tensor."""

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, label=None):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, w):
            return w * ctx.saved_tensors[0].cos(), None

    return Sine


def twice_the_slope(factor, ctx, w):
    return factor * w * ctx.saved_tensors[0].cos(), None


class TwiceTheSlope:
    def __call__(self, ctx, w):
        return twice_the_slope(2.0, ctx, w)


@pytest.mark.parametrize(
    ("rule", "function"),
    [
        (partial(twice_the_slope, 2.0), twice_the_slope),
        (partial(partial(twice_the_slope), 2.0), twice_the_slope),
        (TwiceTheSlope(), TwiceTheSlope.__call__),
    ],
)
def test_a_rule_without_a_name_of_its_own_is_named_by_its_class_and_line(
    torch, sine, clock, watching, rule, function
):
    sine.backward = staticmethod(rule)
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)

    with watching() as watch:
        clock.now += 1000
        sine.apply(x).sum().backward()
    report = adjudge.blame(lambda x: sine.apply(x).exp(), (x.detach(),), seed=0)

    (seen,) = watch.report.at_fault
    for fault in (seen.fault, report.first.fault):
        assert (fault.rule, fault.file) == ("Sine.backward", __file__)
        assert fault.line == function.__code__.co_firstlineno


def refusing(torch, what):
    """A class of tensors that refuses an operation, as one of a library may."""

    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if what in getattr(func, "__name__", ""):
                raise NotImplementedError(what)
            return super().__torch_function__(func, types, args, kwargs or {})

    return torch.rand(3).as_subclass(Refusing).requires_grad_()


def jagged(torch):
    parts = [torch.rand(2), torch.rand(3)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)


STRANGE = {
    "an argument without a text": (lambda torch: torch.rand(3, requires_grad=True), Silent(), ""),
    "no values": (lambda torch: torch.rand(3, device="meta", requires_grad=True), None, "meta"),
    "a shape that varies": (jagged, None, ""),
    "no copies": (lambda torch: refusing(torch, "clone"), None, "NotImplementedError: clone"),
}


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("strange", STRANGE)
def test_only_a_call_of_the_program_itself_raises_in_it(
    torch, sine, clock, watching, strange, every
):
    made, argument, reason = STRANGE[strange]

    class Applies(torch.nn.Module):
        def forward(self, x):
            return torch.sin(sine.apply(x, argument))

    with watching(every=every) as watch:
        for _ in range(3):
            clock.now += 1000
            x = made(torch)
            y = Applies()(x)
            torch.autograd.grad(y, x, torch.ones_like(y))

    assert watch.report.at_fault == []
    said = str(watch.report)
    if reason:
        assert "not judged: calls of " in said
        assert reason in said
    watch = watching()
    with watch:
        clock.now += 1000
        with pytest.raises(TypeError):
            sine.apply(made(torch), argument, "too many")


def test_what_adjudge_does_wrong_itself_does_not_end_the_program_and_is_told(
    torch, sine, clock, watching, monkeypatch
):
    def broken(cls):
        raise KeyError("a mistake of the adapter")

    monkeypatch.undo()  # of what the other tests let through
    watched = importlib.import_module("adjudge_torch.watching")
    monkeypatch.setattr(watched, "rule_of", broken)
    x = torch.rand(3, requires_grad=True)

    with watching() as watch:
        for _ in range(2):
            clock.now += 1000
            sine.apply(x).sum().backward()

    assert x.grad is not None
    assert watch.report.verdict is Verdict.INCONCLUSIVE
    reason = "cannot be recorded: KeyError: 'a mistake of the adapter' (2)"
    assert str(watch.report).splitlines()[1].endswith(f"Sine: {reason}")


# ---------------------------------------------------------------- JAX


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


@pytest.fixture
def clipped(jax):
    """A rule that is wrong where an entry is large."""
    jnp = jax.numpy

    @jax.custom_vjp
    def clipped(x, scale):
        return scale * jnp.tanh(x)

    def backward(kept, w):
        x, scale = kept
        slope = 1 - jnp.tanh(x) ** 2
        return jnp.where(abs(x).max() < 2, slope, 1) * w * scale, (w * jnp.tanh(x)).sum()

    clipped.defvjp(lambda x, scale: (clipped(x, scale), (x, scale)), backward)
    clipped.line = backward.__code__.co_firstlineno
    return clipped


def descend(jax, clock, loss, steps=5, outlier=None):
    w, gradients = jax.numpy.ones((3, 3)) / 4, []
    for k in range(steps):
        clock.now += 1000
        x = jax.random.normal(jax.random.key(k), (4, 3)) * (20 if k == outlier else 0.1)
        gradients.append(jax.grad(loss)(w, x))
        w = w - 0.1 * gradients[-1]
    return [*gradients, w]


@pytest.mark.parametrize("outlier", [None, 3])
def test_a_rule_of_jax_is_judged_where_it_runs_outside_of_jit(
    jax, clock, clipped, watching, outlier
):
    before = jax.custom_vjp.__call__, jax.custom_jvp.__call__

    def loss(w, x):
        return jax.numpy.sum(clipped(jax.nn.relu(x @ w), 2.0))

    without = descend(jax, clock, loss, outlier=outlier)
    with watching() as watch:
        watched = descend(jax, clock, loss, outlier=outlier)

    assert same(without, watched)
    assert (jax.custom_vjp.__call__, jax.custom_jvp.__call__) == before
    (rule,) = watch.report.rules
    assert rule.judged == rule.calls == 5
    assert (rule.fault.line, rule.fault.file) == (clipped.line, __file__)
    assert rule.verdict is (Verdict.PASS if outlier is None else Verdict.FAIL)
    assert rule.step.place.file == __file__


def test_rules_of_jax_that_are_compiled_are_listed(jax, clock, clipped, watching):
    @jax.jit
    def loss(w, x):
        return jax.numpy.sum(clipped(x @ w, 2.0))

    with watching() as watch:
        descend(jax, clock, loss, steps=1)
        with jax.disable_jit():
            descend(jax, clock, loss, steps=1)

    assert "made where JAX compiles or maps them (jit, vmap, scan)" in str(watch.report)
    assert "under jax.disable_jit()" in str(watch.report)
    assert watch.report.rules[0].judged == 1


def test_a_rule_of_jax_without_a_name_of_its_own_has_its_line(jax, clock, watching):
    def backward(factor, x, w):
        return (factor * w * jax.numpy.cos(x),)

    @jax.custom_vjp
    def sine(x):
        return jax.numpy.sin(x)

    sine.defvjp(lambda x: (sine(x), x), partial(backward, 2.0))

    with watching() as watch:
        clock.now += 1000
        jax.grad(lambda x: sine(x).sum())(jax.numpy.ones(3))

    (rule,) = watch.report.at_fault
    assert (rule.fault.rule, rule.fault.line) == ("backward", backward.__code__.co_firstlineno)
