"""What `sweep.py` checks beside what `adjudge write` finds: one function for each library, which
yields cases. Their inputs obey the rules of the library: parameters of distributions are images of
its own bijections, points lie on manifolds, layers are built.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from adjudge import Case

Inputs = tuple[Any, ...]

CAUSES: dict[str, str] = {
    "wrong: `kl_divergence` of two Wishart distributions": r"kl_divergence Wishart.* Wishart",
    "wrong: `log_normal_cdf`, `dsmm` (GPyTorch)": r"^gpytorch.*\.(log_normal_cdf|dsmm)$",
    "wrong in second order: rules of linear_operator, and GPyTorch's kernels by these": (
        r"^gpytorch, second order: kernels\.(LCM|Multitask|RBF)Kernel"
        r"|^gpytorch, second order: functions.*, definite$"
    ),
    "wrong: `zca_whiten` (Kornia)": r"^kornia.*zca_whiten$",
    "wrong: `scale_by_lbfgs` (Optax)": r"^optax.*scale_by_lbfgs$",
    "wrong: `unique` (JAX)": r"^keras\.ops on jax.*\.unique$",
    "wrong: `DoublyTruncatedPowerLaw` (NumPyro)": r"DoublyTruncatedPowerLaw\.log_prob$",
    "convention: steps of adaptive solvers count as constant, or an adjoint equation is solved": (
        r"^torchdiffeq.*: odeint(_adjoint)?\(|^diffrax.*(, adaptive|BacksolveAdjoint)$"
    ),
    "convention: straight-through samples": r"StraightThrough\(.*\)\.sample$",
    "draws other numbers in each call": r"^keras.*\.elastic_transform$",
    "inputs outside of what the function is for": (
        r"functions\.(pivoted_cholesky|sqrt_inv_matmul)$|quaternion_to_angles$"
        r"|quaternion_to_axis_angle$|CorrCholeskyTransform\.log_abs_det_jacobian$"
    ),
    "no derivative: the density of a mixture at its point mass": r": Hurdle\w+\.log_prob$",
}
"""What was found out about the FAILs: a cause, and a pattern of `LIBRARY: FUNCTION`."""


def normal(*shape: int) -> Any:
    """Random numbers, the same in each run."""
    return np.asarray(np.random.default_rng([7, *shape]).normal(size=shape))


def required(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters without a default."""
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    found = inspect.signature(function).parameters.values()
    return [one.name for one in found if one.default is one.empty and one.kind not in kinds]


# ---------------------------------------------------------------- distributions

ALTERNATIVES = (
    ("probs", "logits"),
    ("covariance_matrix", "precision_matrix", "scale_tril"),
    ("scale_matrix", "rate_matrix", "scale_tril"),
    ("correlation_matrix", "correlation_cholesky"),
    ("covariance_row", "covariance_rfft"),
)
"""Parameters of a distribution of which one is given."""
FIXED = {
    "total_count": 4, "dim": 3, "dimension": 3, "num_steps": 3, "event_shape": (3,),
    "reinterpreted_batch_ndims": 1, "transforms": [], "sample_method": "onion",
    "adj_matrix": 1.0 - np.eye(3), "left_censored": 0, "right_censored": 0, "censored": 0,
}  # fmt: skip
"""Arguments that are no real numbers."""
BASES = ("base_dist", "base_distribution", "component_distribution", "marginal_dist")
MIXING = ("mixing_distribution", "mixture_distribution")
METHODS = ("log_prob", "sample", "cdf", "icdf", "entropy", "mean", "variance")


@dataclass(frozen=True)
class Distribution:
    """A method of a distribution, as a function of unconstrained numbers."""

    library: str
    kind: str
    names: tuple[str, ...]
    """The parameters that the numbers stand for."""
    fixed: tuple[str, ...]
    """The parameters that are taken from `FIXED`."""
    method: str

    def map_of(self, name: str) -> Any:
        """The map from all real numbers to the values of a parameter."""
        module = importlib.import_module(self.library)
        found = getattr(module, self.kind).arg_constraints
        known = module.constraints
        if not isinstance(found, dict):  # a property, which needs an object
            found = {"scale_tril": known.lower_cholesky}
            found |= dict.fromkeys(
                ("covariance_matrix", "precision_matrix"), known.positive_definite
            )
        constraint = found.get(name, known.real)
        if name in ("low", "high", "temperature") or (
            self.kind[:7] == "Wishart" and name == "concentration"
        ):
            constraint = known.positive
        return getattr(module, "transform_to", module.biject_to)(constraint)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of the numbers for a parameter of three numbers, or of 3 × 3."""
        transform = self.map_of(name)
        shape = (3, 3) if transform.codomain.event_dim == 2 else (3,)
        return tuple(transform.inverse_shape(shape))

    def made(self, numbers: Inputs) -> Any:
        """The distribution whose parameters are the images of these numbers."""
        module = importlib.import_module(self.library)
        given = {name: FIXED[name] for name in self.fixed}
        for name, one in zip(self.names, numbers, strict=False):
            if name in BASES:
                base = "Gamma" if "TruncatedGamma" in self.kind else "Normal"
                base = "Poisson" if "ZeroInflated" in self.kind else base
                arguments = (one, 1.3) if base == "Normal" else (one**2 + 1,)
                given[name] = getattr(module, base)(*arguments)
            elif name in MIXING:
                given[name] = module.Categorical(logits=one)
            elif name == "high" and "low" in given:
                given[name] = given["low"] + 1 + one**2
            elif name in ("df", "concentration") and "Wishart" in self.kind:
                given[name] = 4 + one[0] ** 2
            else:
                given[name] = self.map_of(name)(one)
        return getattr(module, self.kind)(**given)

    def __call__(self, *numbers: Any) -> Any:
        """What the method returns at the last of the numbers, if it is one of a value."""
        return (self.value if self.library.startswith("torch") else compiled(self))(*numbers)

    def value(self, *numbers: Any) -> Any:
        """The same, operation by operation."""
        module, made = importlib.import_module(self.library), self.made(numbers)
        rest = numbers[len(self.names) :]
        if self.method == "log_prob" and not made.support.is_discrete:
            return made.log_prob(module.biject_to(made.support)(rest[0]))
        if self.method == "sample":
            return self.drawn(made)
        found = getattr(made, self.method)
        return found(*rest) if callable(found) else found

    def drawn(self, made: Any) -> Any:
        """A sample, always with the same random numbers."""
        if self.library.startswith("torch"):
            import torch

            torch.manual_seed(0)
            return made.rsample() if made.has_rsample else made.sample()
        import jax

        return made.sample(jax.random.key(0))

    def inputs(self, place: Callable[[Any], Any]) -> Inputs:
        """Numbers for the parameters, and a value where the method takes one."""
        module = importlib.import_module(self.library)
        x = [place(normal(*self.shape(name)) * 0.6) for name in self.names]
        made = self.made(tuple(x))
        if self.method == "icdf":
            return (*x, place(np.full(made.batch_shape, 0.3)))
        if self.method in ("log_prob", "cdf"):
            value = self.drawn(made)
            if self.method == "log_prob" and not made.support.is_discrete:
                value = module.biject_to(made.support).inv(value)
            return (*x, value)
        if self.method == "sample" and not getattr(made, "has_rsample", False):
            raise NotImplementedError("its samples are not differentiable")
        return tuple(x)


@functools.cache
def compiled(f: Distribution) -> Callable[..., Any]:
    """A method, compiled by JAX once in each process."""
    import jax

    return jax.jit(f.value)


def distributions(library: str, place: Callable[[Any], Any]) -> Iterator[Case | str]:
    """The methods of all distributions of a library, by each of their parametrisations."""
    module = importlib.import_module(library)
    made = [
        (kind, *one)
        for kind, value in vars(module).items()
        if kind in module.__all__
        if isinstance(value, type) and issubclass(value, module.Distribution)
        for one in parametrisations(value)
    ]
    for method, (kind, label, real, fixed) in itertools.product(METHODS, made):
        f = Distribution(library, kind, real, fixed, method)
        for case in tried(f"{label}.{method}", f, functools.partial(f.inputs, place)):
            of_value = isinstance(case, Case) and method in ("log_prob", "cdf")
            if of_value and f.made(case.inputs).support.is_discrete:
                case.options["wrt"] = tuple(range(len(real)))  # values are whole numbers
            if isinstance(case, Case) and place is in_jax:
                case.options["compile"] = False  # it is compiled already
            yield case


def parametrisations(kind: Any) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """For each choice among alternative parameters, a label, and the names of the parameters that
    are real numbers and of those that are taken from `FIXED`.
    """
    parameters = list(inspect.signature(kind).parameters)
    known = kind.arg_constraints if isinstance(kind.arg_constraints, dict) else {}
    groups = [
        [one for one in group if one in parameters]
        for group in ALTERNATIVES
        if len(set(group) & set(parameters)) > 1
    ]
    several = {name for group in groups for name in group}
    needed = (set(required(kind)) | set(known)) - several
    for chosen in itertools.product(*groups):
        given = [one for one in parameters if one in needed or one in chosen]
        label = f"{kind.__name__}({', '.join(chosen)})" if chosen else kind.__name__
        yield (
            label,
            tuple(one for one in given if one not in FIXED),
            tuple(one for one in given if one in FIXED),
        )


def tried(
    name: str, f: Callable[..., Any], inputs: Callable[[], Inputs], **options: Any
) -> Iterator[Case | str]:
    """The case, or why there is none; nothing where the library does not offer the function."""
    try:
        x = inputs()
        values = [np.asarray(one.tolist()) for one in optree.tree_leaves(f(*x))]
        if not all(np.isfinite(one).all() for one in values):
            yield f"{name}: its values are not finite"
            return
    except NotImplementedError:
        return
    except Exception as error:  # whatever a function does with inputs that we made up
        yield f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    else:
        yield Case(f, x, name=name, **options)


def in_torch(value: Any) -> Any:
    """A tensor."""
    import torch

    return torch.tensor(value)


def in_jax(value: Any) -> Any:
    """An array of JAX."""
    import jax.numpy as jnp

    return jnp.asarray(value)


@dataclass(frozen=True)
class Divergence:
    """The Kullback-Leibler divergence of two distributions."""

    first: Distribution
    second: Distribution

    def __call__(self, *numbers: Any) -> Any:
        """The divergence; the numbers of the first distribution come first."""
        split = len(self.first.names)
        module = importlib.import_module(self.first.library)
        first, second = self.first.made(numbers[:split]), self.second.made(numbers[split:])
        return module.kl_divergence(first, second)


def divergences(cases: list[Case | str], place: Callable[[Any], Any]) -> Iterator[Case | str]:
    """The divergences of all pairs of the distributions of these cases for which there is one."""
    means = [one.f for one in cases if isinstance(one, Case) and one.name.endswith(".mean")]
    for pair in itertools.product(means, means):
        f = Divergence(*pair)
        if place is in_jax and pair[0].kind != pair[1].kind:
            continue  # most of them have one in PyTorch, too
        name = " ".join(f"{one.kind}({', '.join(one.names)})" for one in pair)
        inputs = [one.inputs(place) for one in pair]
        second = tuple(1.3 * one + 0.2 for one in inputs[1])
        yield from tried(f"kl_divergence {name}", f, lambda a=inputs[0], b=second: (*a, *b))


def of_library(library: str, place: Callable[[Any], Any]) -> Iterator[Case | str]:
    """Methods of distributions, and divergences of their pairs."""
    cases = []
    for case in distributions(library, place):
        cases.append(case)
        yield case
    yield from divergences(cases, place)


def torch_distributions() -> Iterator[Case | str]:
    """`torch.distributions`."""
    return of_library("torch.distributions", in_torch)


def numpyro() -> Iterator[Case | str]:
    """`numpyro.distributions`."""
    return of_library("numpyro.distributions", in_jax)


# ---------------------------------------------------------------- libraries on PyTorch


def module_of(make: Callable[[], Any], call: Callable[..., Any]) -> Any:
    """A module of PyTorch in double precision that calls another one, whose parameters are
    checked with its inputs.
    """
    import torch

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.held = make()

        def forward(self, *x: Any) -> Any:
            return call(self.held, *x)

    return Called().double()


def built(
    name: str, make: Callable[[], Any], call: Callable[..., Any], *x: Any
) -> Iterator[Case | str]:
    """The case of such a module, or why there is none."""
    try:
        f = module_of(make, call)
    except Exception as error:  # whatever a constructor does with arguments that we made up
        yield f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return
    yield from tried(name, f, lambda: tuple(map(in_torch, x)))


def gpytorch() -> Iterator[Case | str]:
    """Kernels as dense matrices, and the evidence of a Gaussian process."""
    import gpytorch as gp

    def base() -> Any:
        return gp.kernels.RBFKernel()

    known: dict[str, Any] = {
        "num_dims": 3, "num_tasks": 2, "power": 2, "num_samples": 4, "num_angular_weights": 2,
        "grid_size": 6, "base_kernels": [base(), base()],
    }  # fmt: skip
    x, y = 0.3 * normal(4, 3), 0.3 * normal(2, 3)
    for name in gp.kernels.__all__:
        kind = getattr(gp.kernels, name)
        if not isinstance(kind, type) or name in ("Kernel", "MultiDeviceKernel"):
            continue
        given = {one: known.get(one, base()) for one in required(kind)}
        given |= {"num_mixtures": 2, "ard_num_dims": 3} if "Mixture" in name else {}
        call = lambda kernel, x, y: kernel(x, y).to_dense()  # noqa: E731
        yield from built(f"kernels.{name}", functools.partial(kind, **given), call, x, y)

    import linear_operator.functions as on

    operations: dict[str, Callable[..., Any]] = {
        "solve": on.solve,
        "sqrt_inv_matmul": on.sqrt_inv_matmul,
        "inv_quad": on.inv_quad,
        "inv_quad_logdet": lambda a, b: on.inv_quad_logdet(a, b, logdet=True),
        "pivoted_cholesky": lambda a, b: on.pivoted_cholesky(a, 2),
        "root_decomposition": lambda a, b: on.root_decomposition(a).to_dense(),
        "root_inv_decomposition": lambda a, b: on.root_inv_decomposition(a).to_dense(),
        "diagonalization": lambda a, b: on.diagonalization(a, method="symeig")[0],
        "add_jitter": lambda a, b: on.add_jitter(a, 0.1).to_dense(),
    }
    for name, operation in operations.items():

        def definite(a: Any, b: Any, operation: Callable[..., Any] = operation) -> Any:
            return operation(a @ a.mT + in_torch(np.diag([1.0, 2.0, 3.0])), b)

        inputs = in_torch(normal(3, 3)), in_torch(normal(3, 2))
        yield from tried(f"functions.{name}, definite", definite, lambda x=inputs: x)

    def evidence(likelihood: Any, x: Any, y: Any, kind: str) -> Any:
        prior = gp.distributions.MultivariateNormal(y * 0, base().to(x)(x) * 1.5)
        marginal = likelihood(prior)
        return (
            marginal.log_prob(y) if kind == "marginal" else likelihood.expected_log_prob(y, prior)
        )

    for kind in ("marginal", "expected_log_prob"):
        call = functools.partial(evidence, kind=kind)
        make = gp.likelihoods.GaussianLikelihood
        yield from built(f"GaussianLikelihood.{kind}", make, call, x, normal(4))


def torchdiffeq() -> Iterator[Case | str]:
    """Both entry points with each method; the second solves an adjoint equation."""
    import torchdiffeq as ode

    methods = (
        *("dopri8", "dopri5", "bosh3", "fehlberg2", "adaptive_heun", "euler", "midpoint", "heun2"),
        *("heun3", "rk4", "explicit_adams", "implicit_adams"),
    )
    import torch

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = torch.nn.Parameter(in_torch(normal(2, 2)))

        def forward(self, t: Any, y: Any) -> Any:
            return torch.tanh(y @ self.rate) + torch.sin(t)

    t = np.linspace(0.0, 1.0, 3)
    for solver, method in itertools.product(("odeint", "odeint_adjoint"), methods):
        call = lambda field, y, t, s=solver, m=method: getattr(ode, s)(field, y, t, method=m)  # noqa: E731
        yield from built(f"{solver}({method})", Field, call, normal(2), t)


def e3nn() -> Iterator[Case | str]:
    """Modules of `e3nn.o3` and `e3nn.nn` on irreducible representations."""
    import torch
    from e3nn import nn, o3

    irreps, more = o3.Irreps("2x0e + 1x1o + 1x2e"), o3.Irreps("1x0e + 1x1o")
    x, y = normal(3, irreps.dim), normal(3, more.dim)
    tanh = torch.tanh
    modules: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
        "o3.Linear": (lambda: o3.Linear(irreps, more), (x,)),
        "o3.Norm": (lambda: o3.Norm(irreps), (x,)),
        "o3.TensorSquare": (lambda: o3.TensorSquare(more), (y,)),
        "o3.FullTensorProduct": (lambda: o3.FullTensorProduct(irreps, more), (x, y)),
        "o3.ElementwiseTensorProduct": (lambda: o3.ElementwiseTensorProduct(more, more), (y, y)),
        "o3.FullyConnectedTensorProduct": (
            lambda: o3.FullyConnectedTensorProduct(irreps, more, more), (x, y)),
        "o3.SphericalHarmonics": (lambda: o3.SphericalHarmonics([1, 2, 3], True), (normal(3, 3),)),
        "o3.SphericalHarmonicsAlphaBeta": (
            lambda: o3.SphericalHarmonicsAlphaBeta([1, 2]), (normal(3), normal(3))),
        "o3.Legendre": (lambda: o3.Legendre([0, 1, 2, 3]), (normal(3) / 3, normal(3) / 3)),
        "o3.ToS2Grid": (lambda: o3.ToS2Grid(2, 6), (normal(3, 9),)),
        "o3.FromS2Grid": (lambda: o3.FromS2Grid(6, 2), (normal(3, 6, 11),)),
        "nn.Activation": (lambda: nn.Activation("2x0e", [tanh]), (normal(3, 2),)),
        "nn.NormActivation": (lambda: nn.NormActivation(irreps, tanh), (x,)),
        "nn.BatchNorm": (lambda: nn.BatchNorm(irreps), (x,)),
        "nn.BatchNorm(instance)": (
            lambda: nn.BatchNorm(irreps, instance=True), (normal(3, 4, irreps.dim),)),
        "nn.ExtractIr": (lambda: nn.ExtractIr(irreps, "1o"), (x,)),
        "nn.FullyConnectedNet": (lambda: nn.FullyConnectedNet([3, 4, 2], tanh), (normal(4, 3),)),
        "nn.Gate": (lambda: nn.Gate("2x0e", [tanh], "1x0e", [tanh], "1x1o"), (normal(3, 6),)),
        "nn.S2Activation": (lambda: nn.S2Activation("1x0e+1x1o+1x2e", tanh, 6), (normal(3, 9),)),
        "nn.SO3Activation": (lambda: nn.SO3Activation(1, 1, tanh, 4), (normal(3, 10),)),
    }  # fmt: skip
    for name, (make, inputs) in modules.items():
        yield from built(name, make, lambda module, *x: module(*x), *inputs)
    for degree in (1, 2):
        f = o3.Irrep(degree, 1).D_from_angles
        angles = [in_torch(normal(3) + k) for k in range(3)]
        yield from tried(f"o3.Irrep({degree}).D_from_angles", f, lambda a=angles: tuple(a))


def geoopt() -> Iterator[Case | str]:
    """Operations of manifolds, at points and tangents that are projections of free numbers."""
    import geoopt as geo

    kinds: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
        **{
            name: (getattr(geo, name), (2, 3))
            for name in (
                *("Euclidean", "Sphere", "SphereExact", "PoincareBall", "PoincareBallExact"),
                *("SphereProjection", "SphereProjectionExact", "Lorentz"),
            )
        },
        **{
            name: (getattr(geo, name), (3, 2))
            for name in ("CanonicalStiefel", "EuclideanStiefel", "EuclideanStiefelExact")
        },
        "SymmetricPositiveDefinite": (geo.SymmetricPositiveDefinite, (3, 3)),
        "SymmetricPositiveDefinite(SM)": (
            lambda: geo.SymmetricPositiveDefinite("SM"), (3, 3)),
        "SymmetricPositiveDefinite(LEM)": (
            lambda: geo.SymmetricPositiveDefinite("LEM"), (3, 3)),
        "BirkhoffPolytope": (geo.BirkhoffPolytope, (3, 3)),
        "Stereographic": (lambda: geo.Stereographic(-0.7), (2, 3)),
    }  # fmt: skip
    operations: dict[str, Callable[..., Any]] = {
        "projx": lambda m, x, y, u, v: x,
        "proju": lambda m, x, y, u, v: u,
        "egrad2rgrad": lambda m, x, y, u, v: m.egrad2rgrad(x, v),
        "expmap": lambda m, x, y, u, v: m.expmap(x, u),
        "retr": lambda m, x, y, u, v: m.retr(x, u),
        "logmap": lambda m, x, y, u, v: m.logmap(x, y),
        "dist": lambda m, x, y, u, v: m.dist(x, y),
        "dist2": lambda m, x, y, u, v: m.dist2(x, y),
        "inner": lambda m, x, y, u, v: m.inner(x, u, v),
        "norm": lambda m, x, y, u, v: m.norm(x, u),
        "transp": lambda m, x, y, u, v: m.transp(x, y, u),
        "transp_follow_expmap": lambda m, x, y, u, v: m.transp_follow_expmap(x, v, u),
        "transp_follow_retr": lambda m, x, y, u, v: m.transp_follow_retr(x, v, u),
        "mobius_add": lambda m, x, y, u, v: m.mobius_add(x, y),
        "geodesic": lambda m, x, y, u, v: m.geodesic(x.new_tensor(0.3), x, y),
        "dist2plane": lambda m, x, y, u, v: m.dist2plane(x, y, u),
    }

    def on(manifold: Any, a: Any, b: Any, c: Any, d: Any, operation: Any) -> Any:
        if "Positive" in type(manifold).__name__:
            a, b = (one @ one.mT + 0.5 * in_torch(np.eye(3)) for one in (a, b))
        x, y = manifold.projx(a), manifold.projx(b)
        return operation(manifold, x, y, manifold.proju(x, c), manifold.proju(x, d))

    for (kind, (make, shape)), (name, operation) in itertools.product(
        kinds.items(), operations.items()
    ):
        scale = 0.3 if make not in (geo.BirkhoffPolytope,) else 0.0
        points = [scale * normal(*shape, k + 1)[..., 0] for k in range(4)]
        points = [one + (1.0 + 0.1 * k) * (scale == 0.0) for k, one in enumerate(points)]
        call = functools.partial(on, operation=operation)
        if name in ("projx", "proju") or hasattr(make(), name):
            yield from built(f"{kind}.{name}", make, call, *points)


# ---------------------------------------------------------------- libraries on JAX


def optax() -> Iterator[Case | str]:
    """Two updates of each optimizer and transformation, as functions of weights and gradients."""
    import jax.numpy as jnp
    import optax as opt

    known = {
        "learning_rate": 0.1, "clipping": 0.5, "max_delta": 0.7, "threshold": 0.5, "max_norm": 0.5,
        "decay": 0.9, "step_size": 0.1, "eta": 0.1, "gamma": 0.5,
    }  # fmt: skip
    for name in sorted(vars(opt)):
        make = getattr(opt, name)
        if not inspect.isfunction(make):
            continue
        kind = str(inspect.signature(make).return_annotation)
        needs = required(make)
        if "Transformation" not in kind or not set(needs) <= set(known):
            continue

        def updated(
            weights: Any, first: Any, second: Any, make: Any = make, needs: Any = needs
        ) -> Any:
            transformation = make(**{one: known[one] for one in needs})
            state = transformation.init(weights)
            for gradient in (first, second):
                value = jnp.sum(weights**2) / 2
                more = {"value": value, "grad": gradient, "value_fn": lambda w: jnp.sum(w**2) / 2}
                transformation = opt.with_extra_args_support(transformation)
                step, state = transformation.update(gradient, state, weights, **more)
                weights = opt.apply_updates(weights, step)
            return weights

        inputs = [in_jax(normal(2, 3, k + 1)[..., 0]) for k in range(3)]
        yield from tried(name, updated, lambda x=inputs: tuple(x))


@functools.cache
def diffrax_solver(solver: str, adjoint: str, adaptive: bool) -> Callable[..., Any]:
    """A compiled function of the initial value and a matrix in the equation."""
    import diffrax as dfx
    import jax
    import jax.numpy as jnp
    import optimistix

    implicit = solver == "ImplicitEuler" or solver.startswith("Kvaerno")
    root_finder = {"root_finder": optimistix.Newton(rtol=1e-12, atol=1e-12)} if implicit else {}
    options: dict[str, Any] = {
        "solver": getattr(dfx, solver)(**root_finder),
        "adjoint": getattr(dfx, adjoint)(),
        "saveat": dfx.SaveAt(ts=jnp.linspace(0.2, 1.0, 3)),
    }
    if adaptive:
        options["stepsize_controller"] = dfx.PIDController(rtol=1e-8, atol=1e-8)
    field = dfx.ODETerm(lambda t, y, rate: jnp.tanh(rate @ y) + jnp.sin(t))

    def solved(y: Any, rate: Any) -> Any:
        return dfx.diffeqsolve(field, t0=0.0, t1=1.0, dt0=0.1, y0=y, args=rate, **options).ys

    return jax.jit(solved)


@dataclass(frozen=True)
class Solved:
    """A solver of Diffrax, which each process compiles for itself."""

    solver: str
    adjoint: str = "RecursiveCheckpointAdjoint"
    adaptive: bool = False

    def __call__(self, y: Any, rate: Any) -> Any:
        """The solution at three times."""
        return diffrax_solver(self.solver, self.adjoint, self.adaptive)(y, rate)


def diffrax() -> Iterator[Case | str]:
    """Solvers at constant steps, adjoints, adaptive steps, and interpolations."""
    import diffrax as dfx
    import jax.numpy as jnp

    solvers = (
        *("Euler", "Heun", "Midpoint", "Ralston", "Bosh3", "Tsit5", "Dopri5", "Dopri8", "Kvaerno3"),
        *("ReversibleHeun", "LeapfrogMidpoint", "ImplicitEuler", "Kvaerno4", "Kvaerno5"),
    )
    chosen = [Solved(name) for name in solvers]
    chosen += [Solved("Tsit5", one) for one in ("DirectAdjoint", "BacksolveAdjoint", "ForwardMode")]
    chosen += [Solved(one, "DirectAdjoint", adaptive=True) for one in ("Tsit5", "Bosh3", "Dopri8")]
    inputs = in_jax(normal(2)), in_jax(normal(2, 2))
    for one in chosen:
        options: dict[str, Any] = {"modes": ["F"]} if one.adjoint == "ForwardMode" else {}
        name = f"{one.solver}, {one.adjoint}{', adaptive' * one.adaptive}"
        yield from tried(name, one, lambda: inputs, **options)
    ts, ys, t = jnp.linspace(0.0, 1.0, 5), in_jax(normal(5, 2)), in_jax(np.array(0.37))
    for kind, method in itertools.product(("linear", "cubic"), ("evaluate", "derivative")):

        def path(ys: Any, t: Any, kind: str = kind, method: str = method) -> Any:
            if kind == "linear":
                found = dfx.LinearInterpolation(ts, ys)
            else:
                found = dfx.CubicInterpolation(ts, dfx.backward_hermite_coefficients(ts, ys))
            return getattr(found, method)(t)

        yield from tried(f"{kind} interpolation.{method}", path, lambda: (ys, t))


# ---------------------------------------------------------------- keras

SIZES: dict[str, Any] = {
    "filters": 2, "kernel_size": 2, "units": 3, "output_size": 2, "pool_size": 2, "height": 3,
    "width": 3, "num_heads": 2, "key_dim": 2, "head_dim": 2, "num_query_heads": 2, "rate": 0.3,
    "num_key_value_heads": 1, "axes": 1, "equation": "ab,bc->ac", "output_shape": 4, "scale": 0.4,
    "activation": "softplus", "dims": (1,), "n": 2, "target_shape": (3, 1), "factor": 0.2,
    "stddev": 0.3, "height_factor": 0.2, "width_factor": 0.2, "num_tokens": 3,
}  # fmt: skip
SHAPES = ((2, 3), (2, 5, 3), (2, 5, 4, 3), (2, 4, 3, 3, 2), (2, 3, 4, 4, 2), (2, 2, 4, 4, 4, 2))


@functools.cache
def keras_layer(name: str, shape: tuple[int, ...], several: int) -> Any:
    """A layer of Keras with its weights, in double precision."""
    import keras

    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(0)
    kind = getattr(keras.layers, name)
    given = {one: SIZES[one] for one in required(kind.__init__) if one in SIZES}
    given |= {"groups": 1} if name == "GroupNormalization" else {}
    if name in ("RNN", "StackedRNNCells"):
        given["cell" if name == "RNN" else "cells"] = keras.layers.GRUCell(3)
    if name in ("TimeDistributed", "SpectralNormalization", "Bidirectional"):
        given["layer"] = keras.layers.GRU(3) if name == "Bidirectional" else keras.layers.Dense(2)
    layer = kind(**given)
    x = [keras.ops.convert_to_tensor(normal(*shape)) for _ in range(several)]
    layer(*given_to(name, x))
    return layer


def given_to(name: str, x: list[Any]) -> tuple[Any, ...]:
    """The inputs as a layer takes them: one by one, or those of a merging layer as a list."""
    apart = len(x) == 1 or "Head" in name or "Query" in name
    if name.endswith("Cell"):  # the states stand behind the input
        return (x[0], x[1:])
    return tuple(x) if apart else (x,)


@dataclass(frozen=True)
class KerasLayer:
    """A layer as a function of its weights and its inputs."""

    name: str
    shape: tuple[int, ...]
    several: int

    def __call__(self, *numbers: Any) -> Any:
        """What the layer returns; its inputs stand before its weights."""
        layer = keras_layer(self.name, self.shape, self.several)
        x, weights = numbers[: self.several], list(numbers[self.several :])
        fixed = [one.value for one in layer.non_trainable_variables]
        return layer.stateless_call(weights, fixed, *given_to(self.name, list(x)))[0]

    def inputs(self, place: Callable[[Any], Any]) -> Inputs:
        """Random inputs, and random weights in place of zeros and ones."""
        import keras

        layer = keras_layer(self.name, self.shape, self.several)
        weights = [keras.ops.convert_to_numpy(one.value) for one in layer.trainable_variables]
        x = [normal(*self.shape, k + 1)[..., 0] for k in range(self.several)]
        moved = [one + 0.2 * np.abs(normal(*one.shape)) for one in weights]
        return tuple(map(place, (*x, *moved)))


def keras_layers() -> Iterator[Case | str]:
    """All layers, on the backend that `KERAS_BACKEND` names."""
    import keras

    place = in_torch if keras.backend.backend() == "torch" else in_jax
    seen = set[Any]()
    for name, kind in vars(keras.layers).items():
        if not isinstance(kind, type) or kind in seen or not issubclass(kind, keras.layers.Layer):
            continue
        seen.add(kind)
        if name in ("Layer", "Wrapper", "Pipeline", "TFSMLayer", "InputLayer", "Identity"):
            continue
        shapes = SHAPES if "Cell" not in name else SHAPES[:1]
        found: list[Case | str] = []
        for several, shape in itertools.product((1, 2, 3), shapes):
            f = KerasLayer(name, shape, several)
            found = list(tried(name, f, functools.partial(f.inputs, place)))
            if found and isinstance(found[0], Case):
                break
        yield from found
