from __future__ import annotations

import pytest

import attsvm
from attsvm.app import server
from attsvm.cli import figure, play
from attsvm.cli.common import files, registry
from attsvm.cli.common.registry import OptimizerOptions
from attsvm.plots import figures
from attsvm.sweep import manifest


@pytest.mark.parametrize("name", sorted(registry.OPTIMIZERS))
def test_every_optimizer_can_be_made(name):
    takes = registry.OPTIMIZERS[name].takes
    options = OptimizerOptions(norm="nuclear" if "norm" in takes else None, p=3.0 if "p" in takes else None)
    assert isinstance(registry.optimizer_named(name, options), attsvm.descent.Optimizer)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gd", attsvm.GradientDescent(attsvm.descent.Constant(0.1))),
        ("sign", attsvm.SteepestDescent(attsvm.MaxEntry(), attsvm.descent.Constant(0.1))),
        ("muon", attsvm.SteepestDescent(attsvm.Spectral(), attsvm.descent.Constant(0.1), 0.95)),
        ("polyak", attsvm.PolyakDescent(attsvm.descent.Constant(1.0))),
    ],
)
def test_names_stand_for_these_objects(name, expected):
    assert registry.optimizer_named(name, OptimizerOptions()) == expected


def test_options_reach_the_optimizer():
    made = registry.optimizer_named("steepest", OptimizerOptions(norm="nuclear", step_size=0.5))
    assert made == attsvm.SteepestDescent(attsvm.Nuclear(), attsvm.descent.Constant(0.5), 0.0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (OptimizerOptions(0.5, "constant"), attsvm.descent.Constant(0.5)),
        (OptimizerOptions(0.5, "inverse-sqrt"), attsvm.descent.InverseSqrt(0.5)),
        (OptimizerOptions(0.5, "geometric", growth=1.1, largest=7.0), attsvm.descent.Geometric(0.5, 1.1, 7.0)),
        (OptimizerOptions(None, "geometric"), attsvm.descent.Geometric(0.1, 1.01)),
        (OptimizerOptions(None, "lipschitz"), attsvm.descent.LipschitzStep(1.0)),
    ],
)
def test_schedules(options, expected):
    assert registry.optimizer_named("gd", options).step_size == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("frobenius", attsvm.Frobenius()),
        ("l1", attsvm.SumEntry()),
        ("l2", attsvm.Frobenius()),
        ("l3", attsvm.Entrywise(3)),
        ("l1.75", attsvm.Entrywise(1.75)),
        ("linf", attsvm.MaxEntry()),
        ("gamma2", attsvm.norms.Gamma2()),
        ("spectral3", attsvm.norms.SpectralOfRank(3)),
    ],
)
def test_norms(name, expected):
    assert registry.norm_named(name) == expected
    assert registry.svm_norm_named(name, None) == expected


def test_the_entrywise_norm_has_its_exponent_beside_it():
    assert registry.svm_norm_named("entrywise", 2.5) == attsvm.Entrywise(2.5)


@pytest.mark.parametrize("name", sorted(registry.SOLVERS))
def test_every_solver_can_be_made(name):
    assert isinstance(registry.solver_named(name), attsvm.svm.Solver)


def test_every_public_solver_has_a_name():
    base = attsvm.svm.Solver
    public = {getattr(attsvm.svm, name) for name in attsvm.svm.__all__}
    solvers = {kind for kind in public if isinstance(kind, type) and issubclass(kind, base)} - {base}
    assert {type(registry.solver_named(name)) for name in registry.SOLVERS} == solvers
    assert registry.solver_named(None) is None


def test_the_lists_of_the_help_are_those_of_the_rooms():
    """Help texts do not load the rooms whose names they list; this test does."""
    assert tuple(attsvm.data.EXAMPLES) == registry.EXAMPLES
    assert figures.FORMATS == figure.FORMATS
    assert server.USUAL_PORT == play.USUAL_PORT
    assert manifest.NAME == files.MANIFEST
    assert all(make() for make in registry.SAMPLES.values())
    for room, base, made in (
        (attsvm.norms, attsvm.norms.Norm, {registry.svm_norm_named(name, 3.0 if name == "entrywise" else None)
                                           for name in registry.SVM_NORMS}),
        (attsvm.attention, attsvm.attention.Loss, {registry.loss_named(name) for name in registry.LOSSES}),
        (attsvm.descent, attsvm.descent.StoppingRule, {registry.stopping_named(name, 5) for name in registry.STOPPING}),
    ):  # fmt: skip
        public = {getattr(room, name) for name in room.__all__}
        kinds = {kind for kind in public if isinstance(kind, type) and issubclass(kind, base)}
        assert {type(each) for each in made} == kinds - {base, attsvm.attention.CustomLoss}


def test_every_schedule_and_optimizer_has_a_name():
    for base, made in (
        (attsvm.descent.Schedule, [optimizer("gd", schedule=name).step_size for name in registry.SCHEDULES]),
        (attsvm.descent.Optimizer, [
            optimizer(name, norm="nuclear" if "norm" in rule.takes else None, p=3.0 if "p" in rule.takes else None)
            for name, rule in registry.OPTIMIZERS.items()
        ]),
    ):  # fmt: skip
        public = {getattr(attsvm.descent, name) for name in attsvm.descent.__all__}
        kinds = {kind for kind in public if isinstance(kind, type) and issubclass(kind, base)}
        # Two-part descent trains TwoScales, which next-token alone sets up on the command line.
        # Optimizers of PyTorch have PyTorch's names.
        own = {base, attsvm.descent.TwoPartDescent, attsvm.TorchOptimizer}
        assert {type(each) for each in made} == kinds - own


def test_optimizers_of_pytorch_have_its_names():
    made = optimizer("torch.optim.AdamW", settings=("eps=0", "betas=(.8,.9)"), weight_decay=0.2, step_size=0.3)
    assert "torch.optim.AdamW, lr=Constant(size=0.3), betas=(0.8, 0.9), eps=0, weight_decay=0.2" in repr(made)
    assert optimizer("torch.optim.Muon").step_size == 0.001


def optimizer(name, **options):
    return registry.optimizer_named(name, OptimizerOptions(**options))


@pytest.mark.parametrize(
    ("call", "near"),
    [
        (lambda: registry.parameterization_named("qk", None), "kq"),
        (lambda: registry.optimizer_named("nadam", OptimizerOptions()), "adam"),
        (lambda: registry.optimizer_named("gd", OptimizerOptions(schedule="inverse-sqr")), "inverse-sqrt"),
        (lambda: registry.loss_named("logisitc"), "logistic"),
        (lambda: registry.norm_named("nucleer"), "nuclear"),
        (lambda: registry.norm_named("largest"), "there are frobenius"),
        (lambda: registry.stopping_named("saturate", 10), "saturated"),
        (lambda: registry.svm_norm_named("entrywize", None), "entrywise"),
        (lambda: registry.solver_named("active"), "active-set"),
    ],
)
def test_unknown_names_get_the_near_one(call, near):
    with pytest.raises(ValueError, match=near):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: registry.parameterization_named("w", 3), "--rank belongs to"),
        (lambda: optimizer("torch.optim.Muo"), "did you mean Muon"),
        (lambda: optimizer("torch.optim.Adam", settings=("eps",)), "--setting must be NAME=VALUE"),
        (lambda: optimizer("torch.optim.Adam", norm="nuclear"), "--norm and --p do nothing"),
        (lambda: optimizer("gd", settings=("eps=0",)), "--setting belongs to --optimizer torch.optim.NAME"),
        (lambda: registry.optimizer_named("gd", OptimizerOptions(p=3.0)), "--p does nothing with --optimizer gd"),
        (lambda: registry.optimizer_named("adam", OptimizerOptions(momentum=0.5)), "it belongs to sign"),
        (lambda: registry.optimizer_named("steepest", OptimizerOptions()), "needs --norm"),
        (lambda: registry.optimizer_named("mirror", OptimizerOptions()), "needs --p"),
        (lambda: registry.optimizer_named("gd", OptimizerOptions(growth=2.0)), "belong to --schedule geometric"),
        (lambda: registry.norm_named("l0.5"), "needs p of at least 1, or inf; got l0.5"),
        (lambda: registry.svm_norm_named("entrywise", None), "needs --p"),
        (lambda: registry.svm_norm_named("entrywise", 1.0), "strictly between 1 and infinity"),
        (lambda: registry.svm_norm_named("l3", 4.0), "--p does nothing with --norm l3"),
    ],
)
def test_options_that_do_not_fit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
