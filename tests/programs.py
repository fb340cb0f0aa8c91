"""Programs with custom rules, of which one may be planted wrong: for the tests of blame
and of spot checks, and for `benchmarks/blame.py`.

Each program is written once, for the namespaces of PyTorch and JAX.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

# ---------------------------------------------------------------- rules


def of(xp: Any) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Returns the rules: forward(*x), and backward(*x, w), which returns a tuple of gradients."""

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + xp.exp(-x))

    def sigmoid_backward(x: Any, w: Any) -> Any:
        y = sigmoid(x)
        return (w * (y - y * y),)

    def silu(x: Any) -> Any:
        return x * sigmoid(x)

    def silu_backward(x: Any, w: Any) -> Any:
        s = sigmoid(x)
        return (w * (s + x * (s - s * s)),)

    def tanh(x: Any) -> Any:
        return xp.tanh(x)

    def tanh_backward(x: Any, w: Any) -> Any:
        return (w * (1 - xp.tanh(x) ** 2),)

    def normalize(x: Any) -> Any:
        return x / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))

    def normalize_backward(x: Any, w: Any) -> Any:
        n = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
        return (w / n - x * xp.sum(w * x, axis=-1, keepdims=True) / n**3,)

    def softmax(x: Any) -> Any:
        e = xp.exp(x)
        return e / xp.sum(e, axis=-1, keepdims=True)

    def softmax_backward(x: Any, w: Any) -> Any:
        y = softmax(x)
        return (y * w - y * xp.sum(y * w, axis=-1, keepdims=True),)

    def logsumexp(x: Any) -> Any:
        return xp.log(xp.sum(xp.exp(x), axis=-1, keepdims=True))

    def logsumexp_backward(x: Any, w: Any) -> Any:
        return (w * softmax(x),)

    def product(a: Any, b: Any) -> Any:
        return xp.matmul(a, b)

    def product_backward(a: Any, b: Any, w: Any) -> Any:
        return xp.matmul(w, b.mT), xp.matmul(a.mT, w)

    def inverse(a: Any) -> Any:
        return xp.linalg.inv(a)

    def inverse_backward(a: Any, w: Any) -> Any:
        y = xp.linalg.inv(a)
        return (-xp.matmul(y.mT, xp.matmul(w, y.mT)),)

    pairs = (
        (sigmoid, sigmoid_backward), (silu, silu_backward), (tanh, tanh_backward),
        (normalize, normalize_backward), (softmax, softmax_backward),
        (logsumexp, logsumexp_backward), (product, product_backward), (inverse, inverse_backward),
    )  # fmt: skip
    return {forward.__name__: (forward, backward) for forward, backward in pairs}


MISSING: Mapping[str, Callable[..., Any]] = {
    "silu": lambda xp, x, w: (w / (1 + xp.exp(-x)),),
    "tanh": lambda xp, x, w: (w,),
    "normalize": lambda xp, x, w: (w / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True)),),
    "product": lambda xp, a, b, w: (xp.matmul(w, b.mT), 0 * b),
}
"""Gradients without one of their terms."""

MISTAKES = ("sign", "factor", "missing term", "1e-3", "one entry")
SECOND = "second order"
"""A mistake beside these: the gradient is right, and its own derivative takes x for a constant."""


def constant(x: Any) -> Any:
    """Returns the values of an array without its derivatives."""
    return (
        x.detach() if hasattr(x, "detach") else importlib.import_module("jax").lax.stop_gradient(x)
    )


def planted(xp: Any, name: str, backward: Callable[..., Any], mistake: str) -> Callable[..., Any]:
    """Returns `backward` with a mistake; it is still found where `backward` is defined."""

    @functools.wraps(backward)
    def wrong(*x_and_w: Any) -> Any:
        if mistake == SECOND:
            return backward(*map(constant, x_and_w[:-1]), x_and_w[-1])
        right = backward(*x_and_w)
        if mistake == "missing term" and name in MISSING:
            return MISSING[name](xp, *x_and_w)
        if mistake == "one entry":
            mask = np.ones(tuple(right[0].shape))
            mask.flat[mask.size // 2] = 1.5
            return (right[0] * xp.asarray(mask), *right[1:])
        factor = {"sign": -1.0, "1e-3": 1.001}.get(mistake, 1.5)
        return tuple(factor * one for one in right)

    return wrong


# ---------------------------------------------------------------- engines


def torch_rule(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the rule as an `autograd.Function`."""
    torch = importlib.import_module("torch")

    @functools.wraps(backward)
    def pull(ctx: Any, w: Any) -> Any:
        found = backward(*ctx.saved_tensors, w)
        return found[0] if len(found) == 1 else found

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *x: Any) -> Any:
            ctx.save_for_backward(*x)
            return forward(*x)

    Rule.__name__, Rule.backward = forward.__name__, staticmethod(pull)
    return Rule.apply


def jax_rule(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the rule as a `custom_vjp`."""
    jax = importlib.import_module("jax")
    rule = jax.custom_vjp(forward)

    @functools.wraps(backward)
    def pull(x: Any, w: Any) -> Any:
        return backward(*x, w)

    rule.defvjp(lambda *x: (forward(*x), x), pull)
    return rule


def engine(name: str) -> tuple[Any, Callable[..., Any]]:
    """Returns the namespace of an engine, and what makes a rule of it."""
    if name == "torch":
        return importlib.import_module("array_api_compat.torch"), torch_rule
    return importlib.import_module("jax.numpy"), jax_rule


def rules(name: str, wrong: str = "", mistake: str = "") -> SimpleNamespace:
    """Returns the rules of an engine and its namespace `xp`; the rule `wrong` has a mistake."""
    xp, make = engine(name)
    made = {}
    for rule, (forward, backward) in of(xp).items():
        if rule == wrong:
            backward = planted(xp, rule, backward, mistake)
        made[rule] = make(forward, backward)
    return SimpleNamespace(xp=xp, **made)


def line_of(name: str, rule: str) -> int:
    """Returns the line at which the derivative of a rule is defined."""
    return of(engine(name)[0])[rule][1].__code__.co_firstlineno


# ---------------------------------------------------------------- programs


def mlp(r: Any, x: Any, first: Any, middle: Any, last: Any) -> Any:
    """A perceptron with normalized rows, whose middle layers share their weights."""
    for weight in (first, *[middle] * 5, last):
        x = r.normalize(r.silu(r.xp.matmul(x, weight)))
    return r.xp.sum(x, axis=0)


def cnn(r: Any, x: Any, *kernels: Any) -> Any:
    """Residual convolutions along a ring."""
    for kernel in kernels:
        padded = r.xp.concat([x[-1:], x, x[:1]], axis=0)
        windows = r.xp.concat([padded[:-2], padded[1:-1], padded[2:]], axis=1)
        x = x + r.tanh(r.xp.matmul(windows, kernel))
    return r.xp.mean(r.sigmoid(x), axis=0)


def transformer(r: Any, x: Any, q: Any, k: Any, v: Any, up: Any, down: Any) -> Any:
    """Two blocks of attention and a feed-forward part, with shared weights."""
    for _ in range(2):
        y = r.normalize(x)
        scores = r.product(r.xp.matmul(y, q), r.xp.matmul(y, k).mT)
        x = x + r.xp.matmul(r.softmax(scores), r.xp.matmul(y, v))
        x = x + r.xp.matmul(r.silu(r.xp.matmul(r.normalize(x), up)), down)
    return x


def lstm(r: Any, xs: Any, weight: Any, start: Any) -> Any:
    """A recurrent net with gates, unrolled."""
    h = c = start
    n = start.shape[1]
    for k in range(xs.shape[0]):
        gates = r.xp.matmul(r.xp.concat([xs[k : k + 1], h], axis=1), weight)
        c = r.sigmoid(gates[:, :n]) * c + r.sigmoid(gates[:, n : 2 * n]) * r.tanh(gates[:, 3 * n :])
        h = r.sigmoid(gates[:, 2 * n : 3 * n]) * r.tanh(c)
    return h


def gnn(r: Any, nodes: Any, edges: Any, weight: Any) -> Any:
    """Messages along weighted edges."""
    for _ in range(5):
        messages = r.product(r.softmax(edges), r.xp.matmul(nodes, weight))
        nodes = nodes + r.silu(messages)
    return r.logsumexp(nodes)


def flow(r: Any, x: Any, scale: Any, shift: Any) -> Any:
    """The log-likelihood of a normalising flow of affine couplings."""
    logdet = 0.0
    half = x.shape[1] // 2
    for _ in range(4):
        a, b = x[:, :half], x[:, half:]
        s = r.tanh(r.xp.matmul(a, scale))
        b = b * r.xp.exp(s) + r.silu(r.xp.matmul(a, shift))
        logdet = logdet + r.xp.sum(s)
        x = r.xp.concat([b, a], axis=1)
    return logdet - r.xp.sum(x * x) / 2


def ode(r: Any, x: Any, weight: Any) -> Any:
    """Ten steps of a Runge-Kutta method of fourth order."""

    def field(y: Any) -> Any:
        return r.tanh(r.product(y, weight)) - 0.1 * y

    h = 0.1
    for _ in range(10):
        k1 = field(x)
        k2 = field(x + h / 2 * k1)
        k3 = field(x + h / 2 * k2)
        k4 = field(x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


def sinkhorn(r: Any, cost: Any) -> Any:
    """The cost of a transport plan, from Sinkhorn's iterations."""
    f, g = 0 * cost[:, :1], 0 * cost[:1, :]
    for _ in range(8):
        f = -r.logsumexp(g - cost)
        g = -r.logsumexp((f - cost).mT).mT
    return r.xp.sum(r.xp.exp(f + g - cost) * cost)


def kalman(r: Any, xs: Any, a: Any, noise: Any) -> Any:
    """The squared innovations of a Kalman filter."""
    n = a.shape[0]
    eye = r.xp.eye(n, dtype=a.dtype)
    m, p, loss = xs[:1].mT, eye, 0.0
    for k in range(1, xs.shape[0]):
        m, p = r.product(a, m), r.xp.matmul(r.xp.matmul(a, p), a.mT) + 0.1 * eye
        gain = r.xp.matmul(p, r.inverse(p + r.xp.matmul(noise, noise.mT) + eye))
        rest = xs[k : k + 1].mT - m
        m, p = m + r.xp.matmul(gain, rest), r.xp.matmul(eye - gain, p)
        loss = loss + r.xp.sum(rest * rest)
    return loss


def renderer(r: Any, centres: Any, colours: Any) -> Any:
    """Soft discs, composited from front to back."""
    ticks = r.xp.asarray(np.linspace(-1.0, 1.0, 5))
    light, image = 1.0, 0.0
    for k in range(centres.shape[0]):
        distance = (ticks - centres[k, 0]) ** 2 + (ticks - centres[k, 1]) ** 2
        alpha = r.sigmoid(2 - 4 * distance)
        image = image + light * alpha * r.silu(colours[k])
        light = light * (1 - alpha)
    return image


def tensor_network(r: Any, cores: Any, left: Any) -> Any:
    """A matrix product state, contracted with its mirror image."""
    for k in range(cores.shape[0]):
        left = r.normalize(r.product(left, cores[k]))
    return r.product(left, left.mT)


def unet(r: Any, x: Any, down: Any, up: Any) -> Any:
    """Two levels down and up again, with skip connections."""
    skips = []
    for _ in range(2):
        x = r.silu(r.xp.matmul(x, down))
        skips.append(x)
        x = (x[::2] + x[1::2]) / 2
    for skip in reversed(skips):
        x = r.xp.concat([x, x], axis=0) + skip
        x = r.tanh(r.xp.matmul(x, up))
    return r.xp.sum(r.softmax(x) * x, axis=0)


def implicit(r: Any, x: Any, weight: Any) -> Any:
    """A fixed point, iterated."""
    z = 0 * x
    for _ in range(12):
        z = r.tanh(r.product(z, 0.3 * weight) + x)
    return r.normalize(z)


def gru(r: Any, xs: Any, gates: Any, weight: Any, h: Any) -> Any:
    """A gated recurrent unit, unrolled."""
    n = h.shape[1]
    for k in range(xs.shape[0]):
        g = r.sigmoid(r.xp.matmul(r.xp.concat([xs[k : k + 1], h], axis=1), gates))
        both = r.xp.concat([xs[k : k + 1], g[:, :n] * h], axis=1)
        h = g[:, n:] * h + (1 - g[:, n:]) * r.tanh(r.xp.matmul(both, weight))
    return h


def autoencoder(r: Any, x: Any, noise: Any, mean: Any, spread: Any, decode: Any) -> Any:
    """The bound of a variational autoencoder, with its noise given."""
    mu, s = r.silu(r.xp.matmul(x, mean)), r.tanh(r.xp.matmul(x, spread))
    out = r.sigmoid(r.xp.matmul(mu + noise * r.xp.exp(s), decode))
    return r.xp.sum((out - x) ** 2) + r.xp.sum(mu**2 + r.xp.exp(2 * s) - 2 * s) / 2


def experts(r: Any, x: Any, gate: Any, weights: Any) -> Any:
    """A mixture of experts."""
    parts, y = r.softmax(r.xp.matmul(x, gate)), 0.0
    for k in range(weights.shape[0]):
        y = y + parts[:, k : k + 1] * r.silu(r.product(x, weights[k]))
    return y


def state_space(r: Any, xs: Any, decay: Any, into: Any, out: Any) -> Any:
    """A linear recurrence with a gate for each state."""
    h, y = 0 * decay, 0.0
    for k in range(xs.shape[0]):
        h = r.sigmoid(decay) * h + xs[k] * into
        y = y + r.tanh(h * out)
    return y


def hidden_markov(r: Any, transitions: Any, emissions: Any) -> Any:
    """The log-likelihood of a hidden Markov model, by the forward algorithm."""
    transitions = transitions - r.logsumexp(transitions)
    alpha = emissions[:1]
    for k in range(1, emissions.shape[0]):
        alpha = r.logsumexp(alpha + transitions.mT).mT + emissions[k : k + 1]
    return r.logsumexp(alpha)


def contrastive(r: Any, a: Any, b: Any, weight: Any) -> Any:
    """A contrastive loss of two views, at two temperatures."""
    a, b = r.normalize(r.xp.matmul(a, weight)), r.normalize(r.xp.matmul(b, weight))
    loss = 0.0
    for heat in (2, 4):
        scores = heat * r.product(a, b.mT)
        apart = r.xp.mean(r.logsumexp(scores))
        loss = loss + apart - heat * r.xp.mean(r.xp.sum(a * b, axis=-1))
    return loss


def gaussian_process(r: Any, x: Any, y: Any) -> Any:
    """The fit of Gaussian processes of three length scales."""
    fit = 0.0
    for length in (1, 2, 3):
        kernel = r.xp.exp(-((x - x.mT) ** 2) / (2 * length))
        kernel = kernel + r.xp.eye(x.shape[0], dtype=x.dtype)
        fit = fit + r.xp.sum(y * r.product(r.inverse(kernel), r.tanh(y)))
    return fit


def leapfrog(r: Any, q: Any, p: Any, weight: Any) -> Any:
    """A symplectic integrator of 160 steps."""
    for _ in range(160):
        q = q + 0.02 * p
        p = p - 0.04 * r.product(r.tanh(r.xp.matmul(q, weight)), weight.mT)
        q = q + 0.02 * p
    return q


def square_root(r: Any, a: Any) -> Any:
    """The square root of a matrix, by the iteration of Denman and Beavers."""
    z = r.xp.eye(a.shape[0], dtype=a.dtype)
    y = r.product(a, a.mT) + z
    for _ in range(5):
        y, z = (y + r.inverse(z)) / 2, (z + r.inverse(y)) / 2
    return y


def burgers(r: Any, u: Any, rate: Any) -> Any:
    """An explicit scheme for a conservation law on a ring."""
    for _ in range(20):
        flux = r.silu(u) * u
        u = u - 0.05 * (flux - r.xp.concat([flux[-1:], flux[:-1]], axis=0))
        right, left = (r.xp.concat(pair, axis=0) for pair in ([u[1:], u[:1]], [u[-1:], u[:-1]]))
        u = u + 0.1 * r.sigmoid(rate) * (right - 2 * u + left)
    return u


def arm(r: Any, angles: Any, lengths: Any) -> Any:
    """The end of a chain of joints."""
    turned, end = r.xp.eye(2, dtype=angles.dtype), 0.0
    for k in range(angles.shape[0]):
        c, s = r.xp.cos(angles[k : k + 1]), r.xp.sin(angles[k : k + 1])
        turn = r.xp.concat([r.xp.concat([c, -s], axis=1), r.xp.concat([s, c], axis=1)], axis=0)
        turned = r.product(turned, turn)
        end = end + r.silu(lengths[k]) * (turned[0] - turned[1])
    return r.normalize(end)


def quantised(r: Any, x: Any, *weights: Any) -> Any:
    """A net whose weights are pulled to whole numbers by smooth steps."""
    for weight in weights:
        steps = sum(r.sigmoid(8 * (weight - level)) for level in (-1.5, -0.5, 0.5, 1.5)) - 2
        x = r.tanh(r.xp.matmul(x, steps))
    return x


def routing(r: Any, votes: Any) -> Any:
    """Capsules that agree on where to send their votes."""
    agreed, v = 0 * votes[:, :, 0], 0.0
    for _ in range(3):
        parts = r.softmax(agreed)
        v = r.normalize(r.xp.sum(parts[:, :, None] * votes, axis=0))
        agreed = agreed + r.xp.sum(votes * v, axis=-1)
    return v


PROGRAMS: dict[Callable[..., Any], tuple[tuple[int, ...], ...]] = {
    mlp: ((3, 4), (4, 5), (5, 5), (5, 3)),
    cnn: ((6, 2), (6, 2), (6, 2)),
    transformer: ((3, 4), (4, 4), (4, 4), (4, 4), (4, 6), (6, 4)),
    lstm: ((4, 2), (5, 12), (1, 3)),
    gnn: ((4, 3), (4, 4), (3, 3)),
    flow: ((3, 4), (2, 2), (2, 2)),
    ode: ((2, 3), (3, 3)),
    sinkhorn: ((4, 5),),
    kalman: ((5, 2), (2, 2), (2, 2)),
    renderer: ((4, 2), (4, 1)),
    tensor_network: ((7, 3, 3), (2, 3)),
    unet: ((4, 3), (3, 3), (3, 3)),
    implicit: ((2, 3), (3, 3)),
    gru: ((4, 2), (5, 6), (5, 3), (1, 3)),
    autoencoder: ((3, 4), (3, 2), (4, 2), (4, 2), (2, 4)),
    experts: ((3, 4), (4, 3), (3, 4, 2)),
    state_space: ((6, 4), (4,), (4,), (4,)),
    hidden_markov: ((3, 3), (5, 3)),
    contrastive: ((3, 4), (3, 4), (4, 5)),
    gaussian_process: ((4, 1), (4, 1)),
    leapfrog: ((2, 3), (2, 3), (3, 3)),
    square_root: ((3, 3),),
    burgers: ((8,), (8,)),
    arm: ((4, 1), (4, 1)),
    quantised: ((3, 4), (4, 4), (4, 2)),
    routing: ((4, 3, 2),),
}
"""The programs, with the shapes of their inputs."""

RULES: dict[Callable[..., Any], tuple[str, ...]] = {
    mlp: ("silu", "normalize"),
    cnn: ("tanh", "sigmoid"),
    transformer: ("normalize", "product", "softmax", "silu"),
    lstm: ("sigmoid", "tanh"),
    gnn: ("softmax", "product", "silu", "logsumexp"),
    flow: ("tanh", "silu"),
    ode: ("tanh", "product"),
    sinkhorn: ("logsumexp",),
    kalman: ("product", "inverse"),
    renderer: ("sigmoid", "silu"),
    tensor_network: ("normalize", "product"),
    unet: ("silu", "tanh", "softmax"),
    implicit: ("tanh", "product", "normalize"),
    gru: ("sigmoid", "tanh"),
    autoencoder: ("silu", "tanh", "sigmoid"),
    experts: ("softmax", "silu", "product"),
    state_space: ("sigmoid", "tanh"),
    hidden_markov: ("logsumexp",),
    contrastive: ("normalize", "product", "logsumexp"),
    gaussian_process: ("inverse", "product", "tanh"),
    leapfrog: ("tanh", "product"),
    square_root: ("product", "inverse"),
    burgers: ("silu", "sigmoid"),
    arm: ("product", "silu", "normalize"),
    quantised: ("sigmoid", "tanh"),
    routing: ("softmax", "normalize"),
}
"""The rules that each program uses."""


def inputs(name: str, program: Callable[..., Any], seed: int) -> tuple[Any, ...]:
    """Returns random inputs of a program in float64, as arrays of the engine."""
    random, xp = np.random.default_rng(seed), engine(name)[0]
    return tuple(xp.asarray(random.normal(size=shape)) for shape in PROGRAMS[program])
