"""Layers with a backprop callback, and models of Thinc 9 with accumulated parameter gradients."""

import numpy as np
import pytest

import adjudge
from adjudge import InputError, Status, Verdict
from adjudge_cupy import layer, model
from adjudge_cupy.engines import parameters_of

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(5, 3))
W = RANDOM.normal(size=(3, 2))


def dense(X, W):
    """A layer by hand: `tanh(X W)`."""
    Y = np.tanh(X @ W)

    def backprop(dY):
        d = dY * (1 - Y**2)
        return d @ W.T, X.T @ d

    return Y, backprop


def test_a_layer_with_a_callback_passes_and_a_wrong_one_fails():
    def forgetful(X, W):
        Y, backprop = dense(X, W)
        return Y, lambda dY: (backprop(dY)[0], backprop(dY)[1] / len(X))

    assert adjudge.gradcheck(layer(dense), (X, W))
    report = adjudge.examine(layer(forgetful), (X, W))
    assert report.verdict is Verdict.FAIL
    assert "inputs[1]" in report.headline


def test_what_is_no_model_is_refused():
    with pytest.raises(InputError, match="walk"):
        model(dense)


def built(api, name, asarray=np.asarray):
    """A model of Thinc, and an input for it."""
    makers = {
        "linear": lambda: api.Linear(nO=2, nI=3),
        "sigmoid": lambda: api.chain(api.Linear(nO=4, nI=3), api.Sigmoid(nO=2, nI=4)),
        "relu": lambda: api.chain(api.Relu(nO=4, nI=3), api.Linear(nO=2, nI=4)),
        "mish": lambda: api.Mish(nO=4, nI=3),
        "swish": lambda: api.Swish(nO=4, nI=3),
        "maxout": lambda: api.Maxout(nO=4, nI=3, nP=2, normalize=False, dropout=0.0),
        "layernorm": lambda: api.chain(api.Linear(nO=4, nI=3), api.LayerNorm(nI=4)),
        "residual": lambda: api.residual(api.Linear(nO=3, nI=3)),
        "concatenate": lambda: api.concatenate(api.Linear(nO=2, nI=3), api.Linear(nO=1, nI=3)),
        "tied": lambda: _tied(api),
    }
    made = makers[name]()
    X = asarray(np.random.default_rng(5).normal(size=(5, 3)).astype(np.float32))
    made.initialize(X=X)
    return made, X


def _tied(api):
    shared = api.Linear(nO=3, nI=3)  # used twice: its gradient is a sum
    return api.chain(shared, api.Sigmoid(nO=3, nI=3), shared)


PASSING = [
    "linear",
    "sigmoid",
    "mish",
    "swish",
    "layernorm",
    "relu",
    "maxout",
    "residual",
    "concatenate",
    "tied",
]


@pytest.mark.library("thinc.api")
@pytest.mark.parametrize("name", PASSING)
def test_models_of_thinc_pass(library, name):
    made, X = built(library, name)

    report = adjudge.examine(model(made), (parameters_of(made), X), seed=1)

    assert report.verdict is Verdict.PASS, report


@pytest.mark.library("thinc.api")
def test_a_gradient_that_is_not_accumulated_fails(library):
    made, X = built(library, "tied")
    node = made.layers[0]
    plain = type(node).inc_grad

    def overwriting(self, name, value):
        (self.set_grad if self is node else lambda *a: plain(self, *a))(name, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(node), "inc_grad", overwriting)
        report = adjudge.examine(model(made), (parameters_of(made), X), seed=1)

    assert report.verdict is Verdict.FAIL
    assert "linear.W" in str(report) or "linear.b" in str(report)


@pytest.mark.library("thinc.api")
def test_the_softmax_layer_of_thinc_has_the_gradient_of_its_loss(library):
    made = library.Softmax(nO=3, nI=3)
    X = np.random.default_rng(5).normal(size=(5, 3)).astype(np.float32)
    made.initialize(X=X)

    report = adjudge.examine(model(made), (parameters_of(made), X), seed=1)

    # documented so: its backprop is that of the cross-entropy behind it
    assert report.verdict is Verdict.FAIL
    assert Status.MISMATCH in {finding.status for finding in report.findings}


def tanh_layer(model, X, is_train):
    """A layer of Thinc by hand, whose attribute `how` says what it gets wrong."""
    W, how = model.get_param("W"), model.attrs["how"]
    Y = model.attrs["Y"] = model.ops.xp.tanh(X @ W)

    def backprop(dY):
        # "stale": what the latest call left, which need not be the one that this belongs to
        d = dY * (1 - (model.attrs["Y"] if how == "stale" else Y) ** 2)
        if how == "overwrites":
            model.set_grad("W", X.T @ d)
        elif how != "forgets":
            model.inc_grad("W", X.T @ d)
        return d @ W.T

    return Y, backprop


def built_by_hand(api, how, ops):
    made = api.Model("own", tanh_layer, params={"W": ops.asarray(W)}, attrs={"how": how}, ops=ops)
    return made, ops.asarray(X)


NAMED = {
    "forgets": "MISSING: d out / d inputs[0]['0.own.W']",
    "overwrites": "d inputs[0]['0.own.W']",
    "stale": "the vjp is not additive in its cotangent",
}


@pytest.mark.library("thinc.api")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", ["right", *NAMED])
def test_a_layer_that_does_not_accumulate_or_keeps_state_is_named(library, how, seed):
    made, X = built_by_hand(library, how, library.NumpyOps())

    report = adjudge.examine(model(made), (parameters_of(made), X), seed=seed)

    assert report.verdict is (Verdict.PASS if how == "right" else Verdict.FAIL), report
    assert NAMED.get(how, "") in str(report)
    assert report.counts["comparisons"] == 2


@pytest.mark.library("thinc.api")
def test_gradients_that_were_there_before_are_not_counted(library):
    made, X = built_by_hand(library, "right", library.NumpyOps())
    made.set_grad("W", made.get_param("W") + 5)

    assert adjudge.gradcheck(model(made), (parameters_of(made), X), seed=1)


def test_a_layer_with_a_callback_on_a_gpu(gpu):
    inputs = gpu.asarray(X), gpu.asarray(W)

    def forgetful(X, W):
        Y, backprop = dense(X, W)  # np.tanh of an array of CuPy is CuPy's
        return Y, lambda dY: (backprop(dY)[0], backprop(dY)[1] / len(X))

    assert adjudge.gradcheck(layer(dense), inputs).provenance.backend == "cupy"
    assert adjudge.examine(layer(forgetful), inputs).verdict is Verdict.FAIL


@pytest.mark.library("thinc.api")
@pytest.mark.parametrize("how", ["right", *NAMED])
def test_layers_of_cupyops_on_a_gpu(gpu, library, how):
    made, X = built_by_hand(library, how, library.CupyOps())

    report = adjudge.examine(model(made), (parameters_of(made), X), seed=1)

    assert report.verdict is (Verdict.PASS if how == "right" else Verdict.FAIL), report
    assert NAMED.get(how, "") in str(report)
    assert report.provenance.backend == "cupy"


@pytest.mark.library("thinc.api")
@pytest.mark.parametrize("name", PASSING)
def test_models_of_thinc_pass_on_a_gpu(gpu, library, name):
    with library.use_ops("cupy"):
        made, X = built(library, name, gpu.asarray)

    report = adjudge.examine(model(made), (parameters_of(made), X), seed=1)

    assert report.verdict is Verdict.PASS, report
