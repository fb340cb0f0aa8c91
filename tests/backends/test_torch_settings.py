"""PyTorch's settings of precision and of repeatability: named, allowed for, and as before."""

from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest

import adjudge
from adjudge import Status, Verdict
from adjudge.findings import CoarseOperations, CoarseProducts, Rule

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch

    from adjudge_torch import TorchBackend
    from adjudge_torch import environment as settings

pytestmark = pytest.mark.backend("torch")


@pytest.fixture
def newer():
    """`torch.backends`, where it has settings by operator; as before afterwards."""
    if settings._precision("cuda.matmul") is None:
        pytest.skip("PyTorch before 2.9 has one flag for each library")
    with settings.kept():
        for path in settings.OPERATORS:  # as at the start, whatever other tests have set
            settings._set(path, "tf32" if path.startswith("cudnn") else "none")
        yield torch.backends


def setting_of(array):
    return TorchBackend().environment.precision(array).setting


def array(dtype="float32", device="cuda:0"):
    """What the settings look at: no GPU is needed to read them."""
    kind = getattr(torch, dtype)
    return SimpleNamespace(dtype=kind, device=torch.device(device))


def tensor(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def effective():
    return {path: settings._precision(path) for path in (*settings.ROOTS, *settings.OPERATORS)}


def all_tf32(_):
    settings._set("", "tf32")  # flags may be frozen, by torch.testing's own utilities


def products_tf32(backends):
    backends.cuda.matmul.fp32_precision = "tf32"


def cpu_bf16(backends):
    backends.mkldnn.matmul.fp32_precision = "bf16"


def older(backends):
    torch.set_float32_matmul_precision("medium")


def exact_convolutions(backends):
    backends.cudnn.conv.fp32_precision = "ieee"


CHANGES = [all_tf32, products_tf32, cpu_bf16, older, exact_convolutions]


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_the_highest_precision_holds_within_and_all_is_as_before(newer, change, raises):
    change(newer)
    before, seen = effective(), []

    def f(x):
        seen.append(set(effective().values()) - {settings._precision("")})
        assert not {effective()[path] for path in settings.OPERATORS} & {"tf32", "bf16"}
        if raises and len(seen) > 1:
            raise KeyError("stop")
        return (x @ x).sin()

    with pytest.raises(KeyError) if raises else nullcontext():
        adjudge.examine(f, tensor(3, 3), highest_precision=True, in_double=False)

    assert len(seen) > 1
    assert before == effective()


@pytest.mark.parametrize("inside", CHANGES)
def test_what_the_function_sets_is_put_back(newer, inside):
    before = effective()

    def f(x):
        inside(newer)
        return x.sin()

    adjudge.examine(f, tensor(3))

    assert before == effective()
    assert "highest" == torch.get_float32_matmul_precision()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (all_tf32, "torch.backends.cuda.matmul.fp32_precision = 'tf32'"),
        (products_tf32, "torch.backends.cuda.matmul.fp32_precision = 'tf32'"),
        (older, "torch.backends.cuda.matmul.fp32_precision = 'tf32'"),
        (cpu_bf16, "torch.backends.cudnn.conv.fp32_precision = 'tf32' (convolutions)"),
        (exact_convolutions, ""),
    ],
)
def test_the_setting_of_float32_on_a_gpu_is_named(newer, change, expected):
    change(newer)
    backend = TorchBackend()

    assert expected == setting_of(array())
    products = "matmul" in expected
    assert (2.0**-10 if products else 2.0**-23) == backend.effective_eps(array())
    assert "" == setting_of(array("float64"))
    assert 2.0**-52 == backend.effective_eps(array("float64"))


def test_nvidia_s_override_is_above_all(newer, monkeypatch):
    all_tf32(newer)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")

    assert "" == setting_of(array())
    assert 2.0**-23 == TorchBackend().effective_eps(array())


@pytest.mark.parametrize(("dtype", "short"), [("float16", "fp16"), ("bfloat16", "bf16")])
def test_reductions_in_sixteen_bits_are_named(dtype, short):
    name = f"allow_{short}_reduced_precision_reduction"
    with settings.kept():
        setattr(torch.backends.cuda.matmul, name, True)
        assert f"torch.backends.cuda.matmul.{name} = True" in setting_of(array(dtype))
        setattr(torch.backends.cuda.matmul, name, False)
        assert "" == setting_of(array(dtype))


@pytest.mark.parametrize("exact", [True, False])
def test_a_cpu_is_asked_what_its_products_are(newer, monkeypatch, exact):
    cpu_bf16(newer)
    monkeypatch.setattr(settings, "products_are_exact", lambda setting: exact)
    x, w = tensor(4, 4), tensor(4, 4)

    report = adjudge.examine(lambda x: x @ w, x, in_double=False, seed=0)

    # Products of bfloat16 show a derivative to no better than a tenth.
    assert report.verdict is (Verdict.PASS if exact else Verdict.INCONCLUSIVE)
    notes = [f.detail.setting for f in report.findings if f.status is Status.IMPRECISE]
    assert exact == (notes == [])
    assert exact or "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'" in notes[0]
    assert exact or report.tolerance["rtol"] > 0.05


@pytest.mark.parametrize("setting", ["tf32", "bf16"])
def test_what_a_cpu_does_is_measured(newer, setting):
    newer.mkldnn.matmul.fp32_precision = setting
    factor = torch.full((256, 256), 1 + 2.0**-12)
    off = abs(float((factor @ factor).double().mean()) / 256 - (1 + 2.0**-12) ** 2)

    settings.products_are_exact.cache_clear()

    assert settings.products_are_exact(setting) == (off < 2.0**-13)
    settings.products_are_exact.cache_clear()


@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_autocast_is_named_with_its_dtype(narrow):
    weight = tensor(3, 3)
    with torch.autocast("cpu", dtype=getattr(torch, narrow)):
        report = adjudge.examine(
            lambda x: (x @ weight).float(), tensor(3, 3), seed=0, in_double=False
        )
        double = adjudge.examine(torch.sin, tensor(3).double())

    kinds = (CoarseProducts, CoarseOperations)
    (note,) = [f.detail.setting for f in report.findings if isinstance(f.detail, kinds)]
    assert f"torch.autocast('cpu', dtype=torch.{narrow})" in note
    assert not double.findings


# ---------------------------------------------------------------- repeatability


@pytest.mark.parametrize(
    ("number", "dtype", "atomics"),
    [(1, "float32", False), (2, "float32", True), (2, "float64", False)],
)
def test_a_cpu_with_threads_has_atomics(number, dtype, atomics):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        said = TorchBackend().environment.determinism_setting(array(dtype, device="cpu"))
    finally:
        torch.set_num_threads(before)

    setting = "torch.use_deterministic_algorithms(True), or torch.set_num_threads(1)"
    assert (setting if atomics else "") == said


def test_what_makes_a_gpu_repeatable_is_what_is_not_set_yet(monkeypatch):
    backend = TorchBackend()
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)

    plain = backend.environment.determinism_setting(array())
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    configured = backend.environment.determinism_setting(array())
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        benchmarked = backend.environment.determinism_setting(array())
        torch.use_deterministic_algorithms(True)
        try:
            fixed = backend.environment.determinism_setting(array())
        finally:
            torch.use_deterministic_algorithms(False)

    assert "torch.use_deterministic_algorithms(True), with CUBLAS_WORKSPACE_CONFIG" in plain
    assert "CUBLAS" not in configured
    assert "torch.backends.cudnn.benchmark = False" in benchmarked
    assert "torch.backends.cudnn.benchmark = False" == fixed


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_gradient_by_atomics_of_threads_is_named_with_its_setting(threads):
    """The gradient of `x[i]` with many equal indices, on a CPU: f is repeatable, its vjp is not."""
    i = torch.randint(0, 50, (300_000,), generator=torch.Generator().manual_seed(0))
    x = tensor(50)

    for seed in range(3):  # threads that wait for one another add in a fixed order
        report = adjudge.examine(lambda x: x[i], x, seed=seed, in_double=False)
        if report.verdict is Verdict.FAIL:
            break
    else:
        pytest.skip("the threads of this machine added in the same order")
    torch.use_deterministic_algorithms(True)
    try:
        fixed = adjudge.examine(lambda x: x[i], x, seed=0, in_double=False)
    finally:
        torch.use_deterministic_algorithms(False)

    found, note = (one for one in report.findings if one.status is Status.NONDETERMINISTIC)
    assert found.detail.reordered
    assert Rule.VJP is found.detail.rule
    words = "torch.use_deterministic_algorithms(True), or torch.set_num_threads(1)"
    assert words in note.remedy.words
    assert fixed.verdict is Verdict.PASS
    assert not fixed.findings
