"""Sparse and MKLDNN inputs: every layout, masked and not, and the layout of their gradients."""

import pytest
from frameworks import adjudge_torch, torch
from scenarios import over_seeds

import adjudge
from adjudge import Status

pytestmark = pytest.mark.backend("torch")

LAYOUTS = ["coo", "csr", "csc", "bsr", "bsc"]
STORED = {"coo": 5, "csr": 5, "csc": 5, "bsr": 8, "bsc": 8}


@pytest.fixture
def sparse():
    def make(layout):
        dense = torch.tensor(
            [[1.0, 2, 0, 0], [0, 3, 0, 0], [0, 0, 0, 4], [0, 0, 5, 0]], dtype=torch.float64
        )
        convert = {
            "coo": dense.to_sparse,
            "csr": dense.to_sparse_csr,
            "csc": dense.to_sparse_csc,
            "bsr": lambda: dense.to_sparse_bsr((2, 2)),
            "bsc": lambda: dense.to_sparse_bsc((2, 2)),
        }
        return convert[layout]().requires_grad_()

    return make


def squared(masked_grad):
    # not zero where nothing is stored, so that it matters which entries are checked
    return lambda s: (1 + s.to_dense(masked_grad=masked_grad)) ** 2


BY_DOOR = [*(("adjudge", layout) for layout in LAYOUTS), ("adjudge_torch", "csr")]
"""Every layout by the library, and one by the door, which hands its inputs on."""


@pytest.mark.parametrize(
    ("gradcheck", "layout", "fast"),
    [*((*case, False) for case in BY_DOOR), *((*case, True) for case in BY_DOOR[::2])],
    indirect=["gradcheck"],
)
def test_masked_true_checks_the_stored_entries(gradcheck, rule, sparse, layout, fast):
    s = sparse(layout)
    wrong = rule(lambda d: d**2, lambda d, w: 3 * d * w)
    options = {"masked": True, "fast_mode": fast}

    assert gradcheck(squared(True), (s,), **options)
    assert gradcheck(squared(False), (s,), **options)
    assert not gradcheck(lambda s: wrong(s.to_dense()), (s,), raise_exception=False, **options)


@pytest.mark.parametrize("masked", [False, None])
@pytest.mark.parametrize(("gradcheck", "layout"), BY_DOOR, indirect=["gradcheck"])
def test_masked_false_checks_every_entry(gradcheck, sparse, layout, masked):
    s = sparse(layout)

    assert gradcheck(squared(False), (s,), masked=masked)
    assert not gradcheck(squared(True), (s,), masked=masked, raise_exception=False)
    assert gradcheck(squared(True), (s,), masked=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_as_many_numbers_are_compared_as_there_are_coordinates(sparse, layout):
    s = sparse(layout)

    stored = adjudge.examine(lambda s: s.to_dense().sum(), (s,), masked=True, mode="full")
    every = adjudge.examine(
        lambda s: s.to_dense(masked_grad=False).sum(), (s,), masked=False, mode="full"
    )

    assert STORED[layout] == stored.counts["comparisons"]
    assert 16 == every.counts["comparisons"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_function_sees_the_layout_and_at_x_the_pattern_of_the_user(sparse, layout):
    s = sparse(layout)
    seen = []

    def f(s):
        seen.append((s.layout, s._nnz()))
        return s.to_dense(masked_grad=False)

    adjudge.gradcheck(f, (s,))

    assert {s.layout} == {layout for layout, _ in seen}
    assert s._nnz() == seen[0][1]


def test_a_product_with_a_masked_gradient_is_right_for_the_stored_entries_only(gradcheck, sparse):
    s = sparse("coo")
    dense = torch.arange(8.0, dtype=torch.float64).reshape(4, 2).requires_grad_()

    assert gradcheck(torch.sparse.mm, (s, dense), masked=True)
    assert not gradcheck(torch.sparse.mm, (s, dense), masked=False, raise_exception=False)


CUT = "zero wherever x stores no value, and right at the stored values"


@over_seeds(10)
@pytest.mark.parametrize(
    ("layout", "mode"), [*((k, "projected") for k in LAYOUTS), ("coo", "full")]
)
def test_a_gradient_cut_down_to_the_stored_entries_is_said_to_be_that(
    sparse, rule, layout, mode, seeds
):
    s = sparse(layout)
    wrong = rule(lambda d: d**2, lambda d, w: 3 * d * w)

    for seed in seeds if mode == "projected" else seeds[:2]:
        cut, also_wrong = (
            adjudge.examine(f, (s,), mode=mode, seed=seed, blame=False)
            for f in (squared(True), lambda s: wrong(1 + s.to_dense(masked_grad=True)))
        )

        assert not cut
        assert f"{CUT}: if it is meant for these, check it there: masked=True" in str(cut)
        assert not also_wrong
        assert "masked=True" not in str(also_wrong)


@over_seeds(10)
def test_a_gradient_cut_down_to_the_entries_that_a_large_matrix_stores_is_said_to_be_that(seeds):
    torch.manual_seed(0)
    dense = torch.randn(40, 50, dtype=torch.float64) * (torch.rand(40, 50) < 0.1)
    s = dense.to_sparse().coalesce().requires_grad_()
    other = torch.randn(50, 2, dtype=torch.float64, requires_grad=True)

    for seed in seeds:
        assert CUT in str(adjudge.examine(torch.sparse.mm, (s, other), seed=seed))


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_dense_gradient_of_a_sparse_input_is_right_if_its_values_are(
    rule, sparse, layout, masked
):
    s = sparse(layout)
    wrong = rule(lambda s: 2 * s.to_dense(), lambda s, w: 2.02 * w)

    assert adjudge_torch.gradcheck(torch.sum, s, masked=masked)
    if not masked:  # PyTorch compares what is not stored as well
        assert torch.autograd.gradcheck(torch.sum, s, masked=masked)
    assert not adjudge.examine(wrong, s, masked=masked)


def rearranged(*layouts):
    """A function whose gradient is made sparse with these numbers of sparse dimensions."""

    def f(s):
        s = s.clone()
        s.register_hook(lambda w: w.to_dense().to_sparse(*layouts))
        return s.to_dense()

    return f


@pytest.mark.parametrize(("shape", "right", "wrong"), [
    ((2, 3), 2, [1]), ((2, 3), 1, [2]), ((2, 3, 2), 3, [1, 2]), ((2, 3, 2), 2, [1, 3]),
    ((2, 3, 2), 1, [2, 3]),
])  # fmt: skip
@pytest.mark.parametrize("masked", [True, None])
def test_a_sparse_gradient_of_other_dimensions_has_the_wrong_layout(shape, right, wrong, masked):
    torch.manual_seed(0)
    s = torch.rand(shape, dtype=torch.float64).to_sparse(right).requires_grad_()

    assert Status.WRONG_LAYOUT not in found(adjudge.examine(rearranged(right), s, masked=masked))
    for dimensions in wrong:
        report = adjudge.examine(rearranged(dimensions), s, masked=masked)
        assert adjudge.Verdict.FAIL is report.verdict
        assert Status.WRONG_LAYOUT in found(report)
        assert f"layout sparse_coo ({dimensions} sparse, " in str(report)


def found(report):
    return {finding.status for finding in report.findings}


def test_a_sparse_gradient_of_a_dense_input_has_the_wrong_layout(rule):
    x = torch.ones(3, 3, dtype=torch.float64, requires_grad=True)
    f = rule(lambda x: 2 * x, lambda x, w: (2 * w).to_sparse())

    report = adjudge.examine(f, (x,))

    assert {Status.WRONG_LAYOUT} == {finding.status for finding in report.findings}


@pytest.mark.parametrize("masked", [True, False])
def test_uncoalesced_and_hybrid_tensors_are_checked(gradcheck, masked):
    values = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64)
    repeated = torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], values, (2, 2)).requires_grad_()
    rows = torch.stack([values, 2 * values])
    hybrid = torch.sparse_coo_tensor([[0, 1]], rows, (3, 3)).requires_grad_()

    assert gradcheck(squared(masked), (repeated,), masked=masked)
    assert gradcheck(squared(masked), (hybrid,), masked=masked)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_compressed_tensors_with_dense_dimensions_are_checked(gradcheck, rule, layout, masked):
    values = torch.arange(1, 49, dtype=torch.float64).sin().reshape(4, 6, 2)
    values[0:2, 0:3] = values[2:4, 3:6] = 0
    blocks = {"blocksize": (2, 3)} if layout.startswith("b") else {}
    to = getattr(values, f"to_sparse_{layout}")
    hybrid = to(**blocks, dense_dim=1).requires_grad_()
    wrong = rule(lambda d: d**2, lambda d, w: 2.5 * d * w)

    assert gradcheck(squared(masked), (hybrid,), masked=masked)
    assert not gradcheck(
        lambda s: wrong(s.to_dense(masked_grad=masked)),
        (hybrid,),
        masked=masked,
        raise_exception=False,
    )


@pytest.mark.parametrize(("gradgradcheck", "layout"), BY_DOOR, indirect=["gradgradcheck"])
def test_second_derivatives_of_sparse_inputs_are_checked(gradgradcheck, rule, sparse, layout):
    s = sparse(layout)
    wrong = rule(lambda d: d**2, lambda d, w: 2 * d.detach() * w)

    fast = {"fast_mode": True, "raise_exception": False}
    assert gradgradcheck(squared(True), (s,), masked=True, **fast)
    assert not gradgradcheck(squared(True), (s,), masked=False, **fast)
    assert not gradgradcheck(lambda s: wrong(s.to_dense()), (s,), masked=True, **fast)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_forward_mode_of_sparse_inputs_is_unsupported_and_said_so(sparse, layout):
    report = adjudge.examine(squared(True), (sparse(layout),), masked=True, check_forward_ad=True)

    assert adjudge.Verdict.INCONCLUSIVE is report.verdict
    assert "PASS" == report.modes["R"]
    assert f"forward mode (jvp) of torch.sparse_{layout} tensors is not supported" in str(report)


def test_a_sparse_output_is_compared_entry_by_entry_by_the_library():
    x = torch.tensor([[0.3, 0.0], [-0.7, 1.1]], dtype=torch.float64, requires_grad=True)

    assert adjudge.gradcheck(lambda x: x.to_sparse(), (x,))


# -- MKLDNN


@pytest.fixture
def mkldnn():
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of PyTorch has no MKLDNN")
    torch.manual_seed(0)
    return torch.randn(2, 3).to_mkldnn().requires_grad_()


def test_mkldnn_inputs_are_checked(gradcheck, rule, mkldnn):
    wrong = rule(lambda d: d.sin(), lambda d, w: -w * d.cos())

    assert gradcheck(lambda x: x.to_dense().sin(), (mkldnn,))
    assert not gradcheck(lambda x: wrong(x.to_dense()), (mkldnn,), raise_exception=False)


def test_mkldnn_outputs_are_checked_by_the_library(mkldnn):
    x = mkldnn.detach().to_dense().requires_grad_()

    assert adjudge.gradcheck(lambda x: (2 * x).to_mkldnn(), (x,))


def test_forward_mode_of_mkldnn_inputs_is_unsupported_and_said_so(mkldnn):
    report = adjudge.examine(lambda x: x.to_dense(), (mkldnn,), check_forward_ad=True)

    assert adjudge.Verdict.INCONCLUSIVE is report.verdict
    assert "forward mode (jvp) of torch._mkldnn tensors is not supported" in str(report)
