"""What PyTorch does at a point in the vocabulary that engines share, and its replay in balls."""

import subprocess
import sys

import mpmath
import numpy as np
import pytest
from scenarios import over_seeds, seeds

torch = pytest.importorskip("torch")
flint = pytest.importorskip("flint")
from torch.nn import functional as F  # noqa: E402, N812

import adjudge  # noqa: E402
from adjudge import Verdict  # noqa: E402
from adjudge.cli import main  # noqa: E402
from adjudge.engine import Place, backend_named  # noqa: E402
from adjudge.estimate import enclosure_of  # noqa: E402
from adjudge.estimate.replay import DoubtError, mistranslated, precision, replay  # noqa: E402
from adjudge.suites import read_run  # noqa: E402
from adjudge_torch import program as table  # noqa: E402

WITHOUT_OPERATIONS = """
import torch
from torch._ops import _OpNamespace
def absent(self, name): raise AttributeError(name)
_OpNamespace.__getattr__ = absent
import adjudge_torch
"""


def test_the_adapter_needs_no_operation_that_a_release_may_lack_to_be_imported():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_OPERATIONS], capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, done.stderr


def program(f, *x):
    return backend_named("torch").program(lambda leaves: _tuple(f(*leaves)), x)


def _tuple(y):
    return tuple(y) if isinstance(y, tuple | list) else (y,)


def numbers(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def slopes(balls):
    """The middles of derivatives, which are narrow."""
    return np.vectorize(_middle, otypes=[complex])(balls)


def _middle(ball):
    number = flint.acb(ball)
    assert number.real.rad() < 1e-30
    assert number.imag.rad() < 1e-30
    return complex(number.mid())


def assert_enclosed(f, *x, rtol=1e-10):
    """The replay has the values, and along a seeded tangent the derivatives of reverse mode."""
    v = [numbers(*leaf.shape, seed=k + 7, dtype=leaf.dtype) for k, leaf in enumerate(x)]
    made = program(f, *x)
    assert not made.opaque, [(one.step, one.why) for one in made.opaque]
    with precision(200):
        wrong = mistranslated(made)
        assert wrong is None, (wrong.name, wrong.step)
        found = replay(made, [[one.numpy() for one in v]])
        exact = [slopes(one.parts[1]) if 1 in one.parts else np.zeros(one.shape) for one in found]
    leaves = [leaf.clone().requires_grad_() for leaf in x]
    for k, (y, tangent) in enumerate(zip(_tuple(f(*leaves)), exact, strict=True)):
        w = numbers(*y.shape, seed=k + 70, dtype=y.dtype)
        gradients = torch.autograd.grad(y, leaves, w, retain_graph=True, allow_unused=True)
        pairs = [(g, t) for g, t in zip(gradients, v, strict=True) if g is not None]
        slope = sum(torch.vdot(g.flatten(), t.flatten()).real.item() for g, t in pairs)
        terms = (w.resolve_conj().numpy().conj() * tangent).real
        assert abs(slope - terms.sum()) <= rtol * (np.abs(terms).sum() + 1e-300), k


X = numbers(3, 4)
POSITIVE = X.abs() + 0.1
SQUARE = numbers(3, 3, seed=1)
STACK = numbers(2, 3, 3, seed=2)
IMAGE = numbers(2, 4, 6, 6, seed=3)
COMPLEX = numbers(3, 4, seed=4, dtype=torch.complex128)
PLACES = torch.rand(2, 4, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
INDEX = torch.tensor([[0, 2, 1, 1], [2, 0, 0, 1]])


def definite(a):
    return a @ a.mH + 3 * torch.eye(a.shape[-2], dtype=a.dtype)


OPERATORS = {
    "sums": (lambda x: x.sum(0) + x.mean(1, keepdim=True)[:, 0].sum() + x.prod(), X),
    "deviations": (lambda x: (x.var(0), x.std(1, correction=0), *torch.var_mean(x)), X),
    "norms": (lambda x: [torch.linalg.vector_norm(x, p, 1) for p in (1, 2, 3.5, float("inf"))], X),
    "softmax": (lambda x: (x.softmax(0), x.log_softmax(1), F.softmin(x, 0)), X),
    "cumulative": (lambda x: (x.cumsum(0), x.cumprod(1), x.logcumsumexp(0), x.cummax(1)[0]), X),
    "activations": (
        lambda x: [g(x) for g in (F.gelu, F.silu, F.mish, F.selu, F.softplus, F.logsigmoid)],
        X,
    ),
    "pieces": (
        lambda x: [g(x) for g in (F.relu6, F.hardswish, F.hardshrink, F.leaky_relu, F.celu)],
        X,
    ),
    "special": (
        lambda x: [
            g(x)
            for g in (torch.lgamma, torch.special.erfcx, torch.special.log_ndtr, torch.special.i0e)
        ],
        POSITIVE,
    ),
    "powers": (lambda x: (x**2.5, 2.0**x, x**-3, x**x, x.pow(0)), POSITIVE),
    "clamped": (lambda x: (x.clamp(-0.5, 0.5), x.clamp(max=0.1), torch.fmax(x, -x)), X),
    "rounded": (lambda x: (x.floor() * x, x.remainder(0.7), torch.fmod(x, 0.7), x.frac()), X),
    "sorted": (lambda x: (x.sort(1)[0], x.sort(0, descending=True)[0], x.msort()), X),
    "chosen": (lambda x: (*x.topk(2, 1)[:1], x.kthvalue(2, 0)[0], x.median(), x.median(1)[0]), X),
    "largest": (lambda x: (x.max(), x.max(0)[0], x.amin((0, 1)), *torch.aminmax(x, dim=1)), X),
    "gathered": (lambda x: (x.gather(0, INDEX), x[INDEX[0]], x.take(INDEX), x[x > 0]), X),
    "scattered": (
        lambda x: (
            x.scatter_add(0, INDEX, x[:2]),
            x.index_add(0, INDEX[1], x[[0, 1, 2, 0]], alpha=2),
            x.index_put((INDEX[0],), x[[0, 1, 2, 2]] * 0.5, accumulate=True),
        ),
        X,
    ),
    "reduced into": (
        lambda x: [
            x.scatter_reduce(0, INDEX, x[:2] * 2, how)
            for how in ("sum", "mean", "prod", "amax", "amin")
        ],
        X,
    ),
    "moved": (lambda x: (x.flip(0), x.roll(1, 1), torch.cat([x, x.tril()]), x.T.repeat(2, 1)), X),
    "padded": (lambda x: [F.pad(x, (1, 1, 2, 0), mode, value=v) for mode, v in PADDINGS], IMAGE),
    "einsum": (lambda x: torch.einsum("bij,bjk->bik", x, x @ x), STACK),
    "solve": (lambda a: (torch.linalg.solve(a, a[..., 0] ** 2), torch.linalg.inv(a)), STACK),
    "from the right": (lambda a: torch.linalg.solve(a, a.mT @ a, left=False), STACK),
    "determinants": (lambda a: (torch.linalg.det(a), *torch.linalg.slogdet(a), a.logdet()), STACK),
    "cholesky": (
        lambda a: [torch.linalg.cholesky(definite(a), upper=u) for u in (False, True)],
        STACK,
    ),
    "triangular": (
        lambda a: torch.linalg.solve_triangular(a, a[..., :2], upper=True, unitriangular=True),
        STACK,
    ),
    "qr": (lambda a: (*torch.linalg.qr(a[:, :2].mT), *torch.linalg.qr(a[:, :2])), STACK),
    "eigh": (lambda a: torch.linalg.eigvalsh(a + a.mT), STACK),
    "svd": (lambda a: (torch.linalg.svdvals(a), torch.linalg.matrix_norm(a, 2)), STACK),
    "factors of svd": (
        lambda a: [torch.linalg.svd(b, full_matrices=False)[0] for b in (a[:, :2], a[:, :2].mT)],
        STACK,
    ),
    "eigenvalues": (lambda a: (torch.linalg.eigvals(a), torch.linalg.eig(a)[1].abs()), STACK),
    "matrix exponential": (torch.matrix_exp, STACK),
    "mode": (lambda x: (x.mode(1)[0], x.mode(0, keepdim=True)[0]), X),
    "pooling at random": (
        lambda x: (
            F.fractional_max_pool2d(x, (2, 3), (3, 2), _random_samples=PLACES[..., :2]),
            F.fractional_max_pool3d(x, 2, 2, _random_samples=PLACES[:1, :2]),
        ),
        IMAGE,
    ),
    "lu": (lambda a: torch.linalg.lu(a)[1:], STACK),
    "least squares": (lambda a: torch.linalg.lstsq(a[:, :2], a[:, 2:])[0], SQUARE),
    "pseudoinverse": (lambda a: torch.linalg.pinv(a[:, :2]), SQUARE),
    "norm layers": (
        lambda x: (
            F.layer_norm(x, (6,)),
            F.group_norm(x, 2, x[0, :, 0, 0]),
            F.batch_norm(x, None, None, training=True),
            F.instance_norm(x),
        ),
        IMAGE,
    ),
    "convolution": (
        lambda x, k: F.conv2d(x, k, x[0, :, 0, 0], stride=2, padding=1, dilation=(1, 2), groups=2),
        IMAGE,
        numbers(4, 2, 3, 2, seed=9),
    ),
    "transposed convolution": (
        lambda x, k: F.conv_transpose2d(x, k, stride=2, padding=1, output_padding=1, groups=2),
        IMAGE,
        numbers(4, 3, 3, 3, seed=9),
    ),
    "pooling": (
        lambda x: (
            F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.avg_pool2d(x, 2, count_include_pad=False, padding=1),
            F.adaptive_max_pool2d(x, 4),
            F.adaptive_avg_pool2d(x, 4),
            F.lp_pool2d(x.abs(), 2.0, 2),
        ),
        IMAGE,
    ),
    "resized": (
        lambda x: [F.interpolate(x, 9, mode=m) for m in ("nearest", "bilinear", "bicubic")],
        IMAGE,
    ),
    "losses": (
        lambda x: (
            F.cross_entropy(x, INDEX[0, :3], label_smoothing=0.1),
            F.huber_loss(x, x.roll(1)),
            F.smooth_l1_loss(x, -x),
            F.kl_div(x, x.softmax(1), reduction="sum"),
            F.binary_cross_entropy_with_logits(x, x.sigmoid()),
            F.multi_margin_loss(x, INDEX[0, :3]),
            F.cosine_similarity(x, x.roll(1, 0)),
        ),
        X,
    ),
    "attention": (
        lambda x: [F.scaled_dot_product_attention(x, x, 2 * x, is_causal=c) for c in (True, False)],
        numbers(1, 2, 4, 3, seed=5),
    ),
    "distances": (lambda x: (torch.cdist(x, x + 1), torch.pdist(x), x.dist(x.roll(1))), X),
    "bags": (
        lambda w: [F.embedding_bag(INDEX, w, mode=m) for m in ("sum", "mean", "max")],
        X,
    ),
    "of complex numbers": (
        lambda z: (z.abs(), z.angle(), z.real * z.imag, z.conj() * z, z.exp(), z.sgn()),
        COMPLEX,
    ),
    "complex algebra": (
        lambda z: (z @ z.mH, torch.linalg.inv(definite(z)), torch.linalg.cholesky(definite(z))),
        COMPLEX,
    ),
    "made complex": (
        lambda x: (torch.polar(x.exp(), 2 * x), torch.view_as_complex(x.view(3, 2, 2))),
        X,
    ),
    "fft": (
        lambda x: (torch.fft.rfft(x), torch.fft.fft2(x, norm="ortho"), torch.fft.hfft(x, n=7)),
        X,
    ),
    "inverse fft": (lambda z: (torch.fft.irfft2(z), torch.fft.ifft(z, 5, 0)), COMPLEX),
}
PADDINGS = [("constant", 2.0), ("reflect", None), ("replicate", None), ("circular", None)]


@pytest.mark.parametrize("name", OPERATORS)
def test_the_replay_of_an_operator_has_its_values_and_its_derivatives(name):
    f, *x = OPERATORS[name]
    assert_enclosed(f, *x)


right_pooling = table.TRANSLATIONS["fractional_max_pool2d"]


def at_places(x):
    samples = torch.tensor([[[0.5, 0.1]]], dtype=x.dtype)
    return F.fractional_max_pool2d(x[None], (2, 1), (2, 3), _random_samples=samples)


def scaled(record, a):
    return record.tensor(record.emit("multiply", (a, 1 + 1e-9), a.detach()), a.detach())


@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("sin", torch.sin),
        ("silu", F.silu),
        ("_log_softmax", lambda x: F.log_softmax(x, 1)),
        ("flip", lambda x: x.flip(0)),
        ("native_layer_norm", lambda x: F.layer_norm(x, (4,))),
        ("cumsum", lambda x: x.cumsum(0)),
        ("linalg_inv_ex", lambda x: torch.linalg.inv(x[:, :3])),
        ("linalg_matrix_exp", lambda x: torch.matrix_exp(x[:, :3])),
        ("linalg_eig", lambda x: torch.linalg.eig(x[:, :3])[0]),
        ("_linalg_svd", lambda x: torch.linalg.svdvals(x[:, :3])),
        ("mode", lambda x: x.mode(1)[0]),
        ("fractional_max_pool2d", at_places),
    ],
)
def test_a_wrong_translation_is_found(monkeypatch, name, f):
    right = program(f, X)
    slightly = {  # each is off by much less than differences show
        "sin": lambda record, out, x: record.emit("multiply", (x, float(out[0, 0] / x[0, 0])), out),
        "flip": lambda record, out, x, dims: record.emit(
            "take", (x,), out, indices=np.arange(12).reshape(3, 4), fill=0.0
        ),
        "cumsum": lambda record, out, x, dim: record.emit("cumulative_prod", (x,), out, axis=dim),
        "linalg_inv_ex": lambda record, out, x: [
            record.emit("multiply", (record.emit("inv", (x,), out[0]), 1 + 1e-10), out[0]),
            None,
        ],
        "linalg_matrix_exp": lambda record, out, a: record.emit("exp", (a,), out),
        "mode": lambda record, out, x, dim: [
            record.emit("max", (x,), out[0], axis=(1,), keepdims=False),
            None,
        ],
        "fractional_max_pool2d": lambda record, out, x, size, target, samples: right_pooling(
            record, out, x, size, target, samples.flip(-1)
        ),
        **{
            name: lambda record, out, a, *rest, right=table.TRANSLATIONS[name]: right(
                record, out, scaled(record, a), *rest
            )
            for name in ("linalg_eig", "_linalg_svd")
        },
    }
    if name in slightly:
        monkeypatch.setitem(table.TRANSLATIONS, name, slightly[name])
    else:
        formula = table.FORMULAS[name]

        def off(*args, **kwargs):
            made = formula(*args, **kwargs)
            return (
                (made[0] * (1 + 1e-12), *made[1:])
                if isinstance(made, tuple)
                else made * (1 + 1e-12)
            )

        monkeypatch.setitem(table.FORMULAS, name, off)
    wrong = program(f, X)
    with precision(200):
        assert mistranslated(right) is None
        assert mistranslated(wrong) is not None


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", ["layer norm", "group norm"])
def test_what_a_step_rounds_by_cancellation_is_no_other_function(name, seed):
    """Of a number close to its mean little is left when that is taken off: a norm of it was said to
    compute something else.
    """
    x = np.random.default_rng(seed).normal(size=(3, 4))
    x[:, 0] = x[:, 1:].mean(1) + 1e-6 * x[:, 0]
    f = {
        "layer norm": lambda x: F.layer_norm(x + 10, (4,), torch.ones_like(x[0]) * 3),
        "group norm": lambda x: F.group_norm(x + 10, 1),
    }[name]
    made = program(f, torch.tensor(x))
    with precision(200):
        assert mistranslated(made) is None


# ---------------------------------------------------------------- memory


def written_through_a_view(x):
    y = x.clone()
    y.view(-1)[::2].mul_(x.view(-1)[1::2])
    return y.T.sin()


def written_in_parts(x):
    y = torch.zeros(5, 4, dtype=x.dtype)
    y[1:4] = x
    y[0] = y[2] * x[0]
    y[:, 1] += 1
    return y * y.flip(0)


def written_out(x):
    y = torch.empty_like(x)
    with torch.no_grad():
        torch.mul(x, x + 1, out=y)
    return y.t_().exp_()


def kept_before_a_write(x):
    y = x * 2
    before = y + 0
    y.index_add_(0, torch.tensor([0, 0]), x[:2]).clamp_(min=-1)
    return before * y


def parts_of_complex_numbers(x):
    z = torch.complex(x, x * 2)
    z.imag.mul_(x)
    torch.view_as_real(z)[..., 0] -= 1
    return z * z.conj()


def overwritten_with_constants(x):
    y = x.clone()
    y[1] = 3.0
    y[x < -1] = 0.0
    return y.square_() * x


@pytest.mark.parametrize(
    "f",
    [
        written_through_a_view,
        written_in_parts,
        written_out,
        kept_before_a_write,
        parts_of_complex_numbers,
        overwritten_with_constants,
        lambda x: x.expand(2, 3, 4).diagonal(dim1=1, dim2=2) * x.unfold(1, 3, 1).sum(),
        lambda x: x.detach() * x.as_strided((2, 2), (3, 1), 1).sum(),
    ],
)
def test_views_and_writes_in_place_keep_their_values(f):
    x = X.clone()
    made = program(f, x)
    with precision(200):
        assert mistranslated(made) is None
        (y,) = replay(made, [[np.ones((3, 4))]])
        exact = y.parts[1]
    assert torch.equal(x, X)
    step = 1e-6 * torch.ones_like(x)
    slope = (f(x + step) - f(x - step)) / 2e-6  # detach is the identity of the function
    assert np.allclose(slopes(exact), slope, rtol=1e-6, atol=1e-6)


class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.sin(x) * torch.exp(x)

    @staticmethod
    def backward(ctx, w):
        raise AssertionError("no derivative is taken")


def test_the_forward_of_a_custom_function_is_taken_apart():
    made = program(Shifted.apply, X)
    assert [one.name for one in made.operations] == ["sin", "exp", "multiply"]


def test_a_gradient_that_the_function_takes_is_recorded():
    def f(x):
        leaf = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(leaf.sin().sum(), leaf)
        return g * x

    made = program(f, X)
    with precision(200):
        assert mistranslated(made) is None
        (y,) = replay(made, [[np.ones((3, 4))]])
    expected = X.cos() - X * X.sin()
    assert np.allclose(slopes(y.parts[1]), expected)


# ---------------------------------------------------------------- what is left out


def test_what_has_no_translation_is_named_with_its_line():
    line = sys._getframe().f_lineno + 3

    def f(x):
        return (x.relu() * 2).mode(1)[0]

    (one,) = program(f, X).opaque
    assert one.step == "aten.mode.default"
    assert one.place == Place(__file__, line)
    assert one.why


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * x.sum().item(),
        lambda x: x * torch.from_numpy(np.sin(x.detach().numpy())),
        lambda x: x * x.detach().tolist()[0][0],
    ],
)
def test_numbers_that_python_computes_with_are_no_constants(f):
    made = program(f, X)
    assert any("Python" in one.why for one in made.opaque)


def test_what_python_decides_by_is_relied_on():
    def f(x):
        return x.sin() if (x > 0).any() else x

    made = program(f, X)
    assert len(made.relied_on) == 1
    with precision(100):
        replay(made, [[np.ones((3, 4))]])
    touching = program(f, torch.zeros(3, dtype=torch.float64))
    with precision(100), pytest.raises(DoubtError):
        replay(touching, [[np.ones(3)]])


def test_an_order_counts_where_entries_are_chosen_by_it():
    tied = torch.tensor([2.0, 1.0, 2.0], dtype=torch.float64)
    apart = torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64)

    def by_order(x):
        return x.roll(1)[x.argsort()]

    with precision(100):
        replay(program(by_order, apart), [[np.arange(3.0)]])
        with pytest.raises(DoubtError, match="tie"):
            replay(program(by_order, tied), [[np.arange(3.0)]])


def test_random_numbers_are_constants_and_are_drawn_as_ever():
    def f(x):
        return F.dropout(x, 0.5) + torch.randn_like(x)

    torch.manual_seed(1)
    expected, after = f(X), torch.get_rng_state()
    torch.manual_seed(1)
    made = program(f, X)
    assert torch.equal(torch.get_rng_state(), after)
    assert not made.opaque
    assert np.array_equal(made.value(made.outputs[0]), expected)
    assert program(lambda x: torch.normal(x, 1.0), X).opaque


@pytest.mark.parametrize("tables", ["TRANSLATIONS", "FORMULAS"])
@pytest.mark.parametrize("error", [TypeError, KeyError, RuntimeError, NotImplementedError])
def test_a_defect_of_a_translation_is_no_opaque_operation(monkeypatch, tables, error):
    def broken(*args, **kwargs):
        raise error("planted")

    name = {"TRANSLATIONS": "sin", "FORMULAS": "silu"}[tables]
    monkeypatch.setattr(table, tables, {**getattr(table, tables), name: broken})
    f = {"sin": torch.sin, "silu": F.silu}[name]
    if error is NotImplementedError:
        assert len(program(f, numbers(2)).opaque) == 1
    else:
        with pytest.raises(error, match="planted"):
            program(f, numbers(2))


def test_a_function_that_raises_leaves_nothing_behind():
    def f(x):
        x.sin()
        raise KeyError("spoiled")

    with pytest.raises(KeyError, match="spoiled"):
        program(f, X)
    assert torch.is_grad_enabled()
    assert not torch.utils._python_dispatch._len_torch_dispatch_stack()
    assert not torch._C._len_torch_function_stack()
    assert not X.requires_grad


def test_the_spacing_of_a_narrow_dtype_is_kept():
    made = program(lambda x: x.to(torch.bfloat16).sin().double(), X)
    narrowed, sine, widened = made.operations
    assert narrowed.name == widened.name == "astype"
    assert sine.eps == torch.finfo(torch.bfloat16).eps
    with precision(100):
        assert mistranslated(made) is None


# ---------------------------------------------------------------- verdicts


class Off(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, w):
        first = torch.ones_like(w)
        first.view(-1)[0] += ctx.factor
        return w * first, None


VERDICTS = {
    "solve": lambda a: torch.linalg.solve(a, a[0] ** 2),
    "eigh": lambda a: torch.linalg.eigvalsh(a + a.mT),
    "softmax": lambda a: a.softmax(1) @ a,
    "gelu": F.gelu,
    "erf in its tails": lambda a: torch.erf(4 * a),
    "pooling": lambda a: F.adaptive_avg_pool2d(a[None].expand(8, 3, 3), 2),
}


@over_seeds(10)
@pytest.mark.parametrize("name", VERDICTS)
def test_errors_of_1e_12_fail_beside_an_exact_reference_and_rounding_does_not(name, seeds):
    f = VERDICTS[name]
    for seed in seeds:
        x = numbers(3, 3, seed=seed)
        right = adjudge.examine(f, (x,), reference="exact", seed=seed)
        assert right.verdict is not Verdict.FAIL, str(right)
    for delta in (1e-8, 1e-10, 1e-12):
        wrong = adjudge.examine(
            lambda a, d=delta: f(Off.apply(a, d)), (x,), reference="exact", blame=False
        )
        assert wrong.verdict is Verdict.FAIL, (delta, str(wrong))


def test_a_derivative_of_too_few_digits_fails():
    x = torch.tensor([2.0, 5.0], dtype=torch.float64)  # trigamma is good to 4e-10
    assert adjudge.examine(torch.digamma, (x,)).verdict is Verdict.PASS
    report = adjudge.examine(torch.digamma, (x,), reference="exact")
    assert report.verdict is Verdict.FAIL
    assert "exact replay" in str(report)


CASES = """
import torch
from adjudge import Case, reference


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, w):
        (x,) = ctx.saved_tensors
        return w * x.cos() * (1 + 1e-11)


x = torch.tensor([0.3, 2.0], dtype=torch.float64)
right = Case(torch.sin, x, name="right")
wrong = Case(Sine.apply, x, name="wrong")
own = Case(Sine.apply, x, name="own", reference=reference.derivative(jvp=lambda x, v: (v * 0 + 1)))
"""


def test_the_command_line_judges_cases_by_exact_references(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases.py").write_text(CASES)
    assert main(["check", "-q", "cases.py:wrong"]) == 0
    assert main(["check", "cases.py", "--reference", "exact", "--json", "run.json"]) == 1
    run = read_run(tmp_path / "run.json")
    assert [one.verdict for one in run.results] == [Verdict.PASS, Verdict.FAIL, Verdict.FAIL]
    assert [one.report["certified"] for one in run.results] == [True, True, False]
    (entry,) = [one for one in run["wrong"].report["entries"] if one["of"] == "out[0]"]
    with mpmath.workdps(60):
        middle, radius = map(mpmath.mpf, entry["enclosure"].values())
        assert abs(middle - mpmath.cos(mpmath.mpf(0.3))) <= radius < mpmath.mpf("1e-30")
    assert f"{entry['enclosure']['middle'][:19]}" in run["wrong"].details
    assert "certified" in run["wrong"].details
    assert "reference='exact'" in run["wrong"].script
    capsys.readouterr()
    main(["replay", "run.json"])
    assert capsys.readouterr().out.count("the same") == 3


def test_an_interval_of_wrong_sign_or_scale_would_be_seen():
    """The digits that are printed are those of the balls: weighed, cut and widened."""
    with precision(256):
        third = flint.arb(1) / 3
        balls = np.array([third, -2 * third, flint.arb(2).sqrt() * flint.arb(10) ** -30], object)
    for weights in ([1.0, 0, 0], [1.0, 3.0, 0], [0, 0, -0.5], [3.0, 1.5, 1e30]):
        middle, radius = enclosure_of(balls, np.array(weights))
        with mpmath.workdps(100):
            true = weights[0] / mpmath.mpf(3) - weights[1] * 2 / mpmath.mpf(3)
            true += mpmath.mpf(weights[2]) * mpmath.sqrt(2) * mpmath.mpf(10) ** -30
            assert abs(mpmath.mpf(middle) - true) <= mpmath.mpf(radius) + abs(true) * 1e-75
            assert mpmath.mpf(radius) <= abs(true) * 1e-45 + mpmath.mpf(10) ** -74
    assert enclosure_of(balls, np.array([1.0, 0.5, 0.0])) is None  # nothing of it is known
    hull = np.array([flint.arb(0.5, 0.5)], object)
    assert enclosure_of(hull, np.ones(1)) is None


def test_a_function_is_recorded_once_for_all_compositions_and_ways(monkeypatch):
    recorded = []

    def recording(*args):
        recorded.append(args)
        return table.program(*args)

    monkeypatch.setattr("adjudge_torch.backend.program", recording)
    x = numbers(3)
    report = adjudge.examine(lambda a: a.sin() * a, (x,), reference="exact", order=2)
    assert report.ways["torch.func"]["RF"] is Verdict.PASS
    assert len(recorded) == 2  # at x, and beside it


def test_a_function_that_draws_is_recorded_with_the_numbers_that_it_has():
    drop = torch.nn.Dropout(0.5)

    def f(a, factor=1.0):
        moved = Off.apply(a, factor - 1.0)
        return drop(moved.sin()) + moved.exp()

    x = numbers(6)
    for seed in range(3):
        torch.manual_seed(seed)
        assert adjudge.examine(f, (x,), reference="exact").verdict is Verdict.PASS
        wrong = adjudge.examine(lambda a: f(a, 1 + 1e-9), (x,), reference="exact")
        assert wrong.verdict is Verdict.FAIL


def _angle(x):
    return torch.atan2(x, torch.full_like(x, -1.0))


def _log(x):
    return torch.complex(torch.full_like(x, -1.0), x).log().imag


JUMPS = {
    "an integer of a number": (lambda x: x * x.long(), (2.0, 2.5)),
    "a power of two": (lambda x: torch.frexp(x).mantissa, (1.0, 0.3)),
    "an integer of a rounded number": (lambda x: x * (x * 2).round().long(), (0.25, 2.5)),
    "a sign of a floor": (lambda x: x * x.floor().sign(), (1.0, 2.5)),
    "a number of numbers": (lambda x: x * len((x - 2).nonzero()), (2.0, 2.5)),
    "a branch by an angle": (lambda x: torch.where(_angle(x) > 0, x, x + 1), (0.0, 2.5)),
    "a branch by a logarithm": (lambda x: torch.where(_log(x) > 0, x, x + 1), (0.0, 2.5)),
    "no power of zero": (lambda x: torch.frexp(x).mantissa, (0.0, 0.3)),
}


@pytest.mark.parametrize("name", JUMPS)
def test_what_jumps_at_x_is_not_decided(name):
    f, given = JUMPS[name]
    x = torch.tensor(given, dtype=torch.float64)
    made = program(f, x)
    with precision(128):
        try:
            undefined = any(not one.is_finite() for one in replay(made, [[np.ones(2)]])[0].parts[1])
        except DoubtError:
            undefined = True
    assert undefined
    made = program(f, x + 0.1)
    with precision(128):
        replay(made, [[np.ones(2)]])


def test_what_was_only_moved_is_equal_to_itself():
    def f(x):
        triangle = x.tril(-1) + x.diagonal().exp().diag_embed()
        assert (triangle.tril() == triangle).all()  # as distributions validate their parameters
        return triangle.sum(1)

    assert adjudge.examine(f, (numbers(3, 3),), reference="exact").certified

    def jumps(x):
        return x if x[0] == x[1] else 2 * x

    x = torch.full((2,), 0.7, dtype=torch.float64)
    assert not adjudge.examine(jumps, (x,), reference="exact").certified


def test_running_statistics_are_no_constants():
    norm = torch.nn.BatchNorm1d(1).double()

    def f(x):
        norm(x[:, None])
        return x * norm.running_mean

    assert "native_batch_norm" in program(f, numbers(6)).opaque[0].step
    norm.eval()
    assert not program(f, numbers(6)).opaque


def test_a_comparison_that_python_reads_is_seen():
    def f(x):
        return 2 * x if torch.equal(x, x.round()) else 3 * x

    assert program(f, torch.tensor([1.0, 2.0], dtype=torch.float64)).opaque


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("f", [torch.special.entr, torch.logit, F.mse_loss, torch.lerp])
def test_decompositions_convert_sixteen_bits_and_keep_what_goes_in(f, dtype):
    x = torch.tensor([0.3, 0.7], dtype=dtype)
    more = {F.mse_loss: (x * x,), torch.lerp: (x * x, 0.3)}.get(f, ())
    made = program(lambda x: f(x, *more), x)
    assert made.operations
    with precision(128):
        found = replay(made, [[np.ones(2)]])[0]
    assert found.moves.any()
