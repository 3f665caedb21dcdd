"""Which file is the same as which, and what an edit of the sources makes new."""

import json
import pickle
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from uqsonet.errors import ConfigError
from uqsonet_study.cli import read_config
from uqsonet_study.config import LawConfig
from uqsonet_study.pipeline import Plan, Told, law_modules, model_module
from uqsonet_study.pipeline.edits import Sources
from uqsonet_study.pipeline.paths import numbers
from uqsonet_study.pipeline.plan import file_digest

ROOT = Path(__file__).resolve().parents[1]
PROBLEM = "uqsonet_study.problems.diffusion1d"
TRAINER, LOOP = "uqsonet_study.trainer", "uqsonet.operator.train"
SOLVER = "uqsonet_study.solvers.elliptic1d"
FIGURE = "uqsonet_study.report.figures.compare"
STYLE = "uqsonet_study.report.figures.style"
LAW = "uqsonet.laws.base"
MODEL_OF = {name: model_module("uqsonet", name) for name in ("karhunen_loeve", "attention")}


def plan_of(*overlays: Path) -> Plan:
    return Plan(read_config([ROOT / "config.yaml", *overlays]))


def varied(plan: Plan, **update: Any) -> Plan:
    """Return the plan of a changed configuration."""
    return Plan(plan.config.model_copy(update=update))


def with_experiment(plan: Plan, name: str, **update: Any) -> Plan:
    """Return a plan with one experiment changed."""
    chosen = plan.config.experiments[name].model_copy(update=update)
    return varied(plan, experiments=plan.config.experiments | {name: chosen})


def weights(plan: Plan, case: str, method: str = "uqsonet") -> list[str]:
    return plan.paths.trained(plan.config.cases[case], method, "safetensors")


def posteriors(plan: Plan, case: str, evaluation: Any = "precise") -> str:
    return plan.paths.reference(plan.config.cases[case], evaluation)


def layouts(plan: Plan, case: str) -> str:
    return plan.paths.layouts(plan.config.cases[case])


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of()


def test_reasons_of_snakemake_are_short_and_name_what_changed() -> None:
    config = {"shard": 1000, "note": "x" * 500, "training": {"iterations": 60}}
    before, now = (Told(seed=seed, config=config, code="a" * 8) for seed in (1, 2))
    assert repr(before).replace("seed=1", "seed=2") == repr(now) and len(repr(now)) < 120
    assert "config.shard=1000 config.training.iterations=60 " in repr(now) and "xx" not in repr(now)
    assert repr(Told(before, config=config | {"note": "y" * 500})) != repr(before)
    assert pickle.loads(pickle.dumps(now)) == now == {**now}


def test_each_trial_has_a_file_of_its_own_and_its_name_says_what_it_is(plan: Plan) -> None:
    folder = "results/train/diffusion1d/tuned/uqsonet-N10000"
    assert weights(plan, "diffusion1d") == [f"{folder}/trial{k}.safetensors" for k in range(5)]
    assert layouts(plan, "diffusion1d") == "results/sensors/diffusion1d/uniform-m1-10.h5"
    found = posteriors(plan, "diffusion1d_noise-noise0.5")
    folder = "results/reference/diffusion1d/uniform-m3+7/noise0.5"
    assert found == f"{folder}/precise-samples4000.h5"
    assert [numbers(n) for n in ([1, 2], [1, 2, 3, 7], [5])] == ["1+2", "1-3+7", "5"]
    long = [numbers(list(range(k, 200 + k, 2))) for k in (0, 1)]
    assert long[0] != long[1] and all(len(name) < 20 for name in long)


def test_cases_that_disagree_about_a_file_are_refused_by_name(plan: Plan) -> None:
    chosen = plan.config.experiments["diffusion1d"]
    twins = {f"twin{k}": chosen.model_copy(update={"noise_std": 0.1 + k * 1e-9}) for k in (0, 1)}
    with pytest.raises(ConfigError, match=r"twin0 and twin1 need it with another noise_std"):
        varied(plan, experiments=plan.config.experiments | twins)


def test_models_are_found_by_method_and_architecture() -> None:
    assert model_module("vidon", "attention") == MODEL_OF["attention"]
    assert model_module("vidon", "karhunen_loeve_set") == "uqsonet.networks.vidon"
    for method, message in (("perceptron", "there are"), ("vidon", "no architecture 'karhunen_lo")):
        with pytest.raises(ConfigError, match=message):
            model_module(method, "karhunen_loeve")


def test_a_digest_follows_imports_and_scripts(tmp_path: Path) -> None:
    sources, script = Sources(ROOT / "src"), tmp_path / "a.py"
    script.write_text("from uqsonet_study.layouts import load_layouts\n")
    before = sources.digest([script])
    assert before == sources.digest([script]) != sources.digest()
    script.write_text('"""Words."""\nfrom uqsonet_study.layouts import load_layouts  # words\n')
    assert before == sources.digest([script])
    script.write_text("from uqsonet_study.layouts import generate_layouts, load_layouts\n")
    assert before != sources.digest([script])
    with pytest.raises(ModuleNotFoundError, match="elsewhere"):
        sources.digest(modules=["uqsonet.elsewhere"])


RULES = ("simulate", "sensors", "reference", "law", "evaluate", "inference", "table")


class Copy:
    """The sources in a copy that may be edited."""

    def __init__(self, root: Path) -> None:
        self.root, self.sources = root, Sources(root)
        self.before = self.digests(self.sources)

    def path(self, module: str) -> Path:
        base = self.root.joinpath(*module.split("."))
        return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")

    def digests(self, sources: Sources) -> dict[str, str]:
        """Return the digest of every rule's script, of training by model."""
        scripts = ROOT / "workflow/scripts"
        of = ("simulate", "sensors", "reference")
        found = {
            rule: sources.digest([scripts / f"{rule}.py"], [PROBLEM] if rule in of else [])
            for rule in RULES
        }
        for name, model in MODEL_OF.items():
            found[f"train {name}"] = sources.digest([scripts / "train.py"], [model])
        found["figure"] = sources.digest([scripts / "figure.py"], [FIGURE])
        for law in ("mixture", "bounded", "auto"):
            found[f"law {law}"] = sources.digest([scripts / "law.py"], law_modules(law))
        return found | {"a law": sources.digest(modules=[LAW])}

    def changed(self, *edits: tuple[str, Callable[[str], str]]) -> set[str]:
        """Return the jobs that edits of modules plan; the edits are taken back."""
        kept = {module: self.path(module).read_text() for module, _ in edits}
        for module, edit in edits:
            text = self.path(module).read_text()
            self.path(module).write_text(edit(text))
            assert self.path(module).read_text() != text, "the edit changed nothing"
        sources = Sources(self.root)
        read, write = sources.tree, sources.text  # all other modules are known already
        sources.tree = cache(lambda m: read(m) if m in kept else self.sources.tree(m))
        sources.text = cache(lambda m: write(m) if m in kept else self.sources.text(m))
        after = self.digests(sources)
        for module, text in kept.items():
            self.path(module).write_text(text)
        return {job for job in self.before if self.before[job] != after[job]}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    root = tmp_path_factory.mktemp("sources")
    for package in ("uqsonet", "uqsonet_study"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / package, root / package, ignore=ignored)
    return Copy(root)


def first(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


def added(text: str) -> str:
    return text + "\nMORE = 1\n"


def test_words_versions_and_writing_plan_nothing(copy: Copy) -> None:
    in_other_words = first('"""', '"""In other words. ')
    assert not copy.changed(
        (LOOP, first('"the loss of trial', '"in other words: the loss of trial')),
        (LOOP, first('"starting from the beginning', '"anew')),
        ("uqsonet", lambda text: text.replace('__version__ = "', '__version__ = "9.')),
        (TRAINER, lambda text: text + "\n# a comment\n"),
        (TRAINER, in_other_words),
        (MODEL_OF["karhunen_loeve"], in_other_words),
        ("uqsonet.networks.attention_networks", in_other_words),
        ("uqsonet.gauss.modes", first("give at most", "allow no more than")),
        (SOLVER, first("from torch", "\n\nfrom torch")),
    )
    # Nor do modules that no script imports.
    modules = [f"uqsonet_study.{m}" for m in ("ship", "report.cards", "check", "cli")]
    assert not copy.changed(*((module, added) for module in modules))
    for path in copy.root.glob("uqsonet/emulator/weights/*.safetensors"):
        path.write_bytes(b"of another day")
    assert not copy.changed((TRAINER, lambda text: text + "\n# a comment\n"))


def test_an_edit_of_a_model_trains_it_anew_and_nothing_else(copy: Copy) -> None:
    trainings = {f"train {name}" for name in MODEL_OF}
    iterations = first("progress.iteration += 1", "progress.iteration += 2")
    assert copy.changed((LOOP, iterations)) == trainings
    for name, model in MODEL_OF.items():
        changed = copy.changed((model, added))
        assert trainings & changed == {f"train {name}"}
        assert "a law" not in changed


def test_an_edit_beside_trainings_plans_what_it_changes_and_nothing_else(copy: Copy) -> None:
    trainings = {f"train {name}" for name in MODEL_OF}
    solver = copy.changed((SOLVER, added))
    assert {"simulate", "reference"} <= solver
    assert not trainings & solver and "evaluate" not in solver
    assert {"law", "evaluate", "a law"} <= copy.changed((LAW, added))
    # Laws are imported by name.
    assert copy.changed(("uqsonet.laws.mixture", added)) == {"law mixture", "law auto"}
    assert law_modules("gaussian") == law_modules(None) == []


def test_an_edit_of_the_report_plans_the_report(copy: Copy) -> None:
    trainings = {f"train {name}" for name in MODEL_OF}
    assert copy.changed((STYLE, added)) == {"figure"}
    caption = copy.changed(("uqsonet_study.report.tables.captions", added))
    assert "table" in caption and not caption & {"evaluate", "figure", *trainings}
    assert copy.changed(("uqsonet_study.config.outputs", added)) <= {"table", "figure"}


def files_of(plan: Plan) -> dict[str, list[Any]]:
    """Return the files of every case, with all trials of a method as one."""
    found: dict[str, list[Any]] = {}
    for name, case in plan.config.cases.items():
        found[name] = [layouts(plan, name), plan.score_files([case.experiment])[name]]
        found[name] += [posteriors(plan, name, e) for e in ("validation", *case.evaluations)]
        for method in case.methods:
            folder = plan.paths.training(case, method)
            judged = plan.made[folder][0]
            found[name] += [folder, plan.paths.reference(judged, "validation")]
    return found


def test_no_name_depends_on_how_the_work_is_done_or_declared(plan: Plan) -> None:
    how = plan.config.jobs.model_copy(update={"checkpoint_minutes": 9, "together": True})
    back = dict(reversed(list(plan.config.experiments.items())))
    for other in (
        varied(plan, experiments=back),
        varied(plan, experiments=back, select=["poisson2d"]),
        varied(plan, jobs=how),
    ):
        assert files_of(other) == files_of(plan)


def test_a_training_is_one_job_judged_without_noise_on_the_most_counts(plan: Plan) -> None:
    for case in ("diffusion1d_noise-noise1", "diffusion1d_size-n10000", "diffusion1d_ensemble"):
        chosen, _ = plan.made[plan.paths.training(plan.config.cases[case], "uqsonet")]
        assert chosen.noise_std == 0 and len(chosen.sensors.counts) == 10


def test_training_does_not_depend_on_the_number_of_trials(plan: Plan) -> None:
    other = with_experiment(plan, "diffusion1d", trials=9)
    ours, theirs = (weights(p, "diffusion1d") for p in (plan, other))
    assert ours == theirs[: len(ours)] and len(theirs) == 9
    for path, (_, told) in plan.made.items():
        assert other.made[path][1] == told


def test_what_only_an_ablation_reads_is_not_scored_on_test_sets() -> None:
    plan = plan_of(ROOT / "config/ablation.yaml")
    parts = plan.config.tables["parts"].experiments
    assert set(plan.summarised()) == set(parts) < set(plan.config.selected)
    assert set(plan.tables()) == {"ablation", "parts"}
    selected = plan.config.selected
    other = varied(plan, tables={}, figures={}, select=selected)
    assert other.summarised() == selected


def test_cases_share_what_is_the_same(plan: Plan) -> None:
    # One training serves every noise level, and the largest N is no other model than ...
    for noise in ("0.1", "1"):
        assert weights(plan, f"diffusion1d_noise-noise{noise}") == weights(plan, "diffusion1d")
    assert weights(plan, "diffusion1d_size-n10000") == weights(plan, "diffusion1d")
    assert weights(plan, "poisson2d_noise-noise0.5") == weights(plan, "poisson2d")
    # ... but what differs in N or d_z is trained by itself,
    for case in ("diffusion1d_size-n5000", "diffusion1d_latent-dz5"):
        assert not set(weights(plan, case)) & set(weights(plan, "diffusion1d"))
    # and references differ with the noise and the counts, not along a sweep.
    sizes = [c.name for c in plan.config.cases_of(["diffusion1d_size"])]
    assert len({posteriors(plan, name) for name in sizes}) == 1
    noises = [c.name for c in plan.config.cases_of(["diffusion1d_noise"])]
    assert len({posteriors(plan, name) for name in noises}) == 5
    assert len({layouts(plan, name) for name in noises}) == 1


def test_members_of_an_ensemble_are_the_trials_of_its_method(plan: Plan) -> None:
    members = weights(plan, "diffusion1d_ensemble", "deep_ensemble")
    assert members == weights(plan, "diffusion1d", "vidon") and len(members) == 5
    case = plan.config.cases["diffusion1d_ensemble"]
    told = plan.scoring(case, "deep_ensemble", "paper")
    assert told["weights"] == members and told["ensemble"] and told["trained"] == "vidon"


def test_the_papers_recipe_trains_for_each_noise_and_count() -> None:
    plan = plan_of(ROOT / "config/paper.yaml")
    cases = plan.config.cases_of(["diffusion1d_noise"])
    assert len({file for case in cases for file in weights(plan, case.name)}) == 5 * 2 * 5
    same = weights(plan, "diffusion1d_size-n10000-m3"), weights(plan, "diffusion1d_latent-dz10-m3")
    assert same[0] == same[1]  # d_z = 10 is the recipe's own


def test_selecting_an_experiment_renames_nothing(plan: Plan) -> None:
    chosen = varied(plan, select=["diffusion1d_noise"])
    assert weights(chosen, "diffusion1d_noise-noise0.3") == weights(plan, "diffusion1d")
    assert set(chosen.tables()) == {"1d-pde-addnoise-error"}
    assert set(chosen.figures()) == {"1d-pde-addnoise"}
    assert chosen.pictures() == ["diffusion1d_noise_data", "diffusion1d_noise_training"]


def test_one_more_noise_level_changes_no_other_job(plan: Plan) -> None:
    levels = plan.config.experiments["diffusion1d_noise"].noise_levels
    other = with_experiment(plan, "diffusion1d_noise", noise_std=[*levels, 2.0])
    assert plan.made.items() <= other.made.items()
    for name in plan.config.cases:
        case = plan.config.cases[name]
        for label in case.evaluations:
            for method in case.methods:
                told = plan.scoring(case, method, label)
                assert other.scoring(other.config.cases[name], method, label) == told
    part = {"experiments": ["poisson2d"], "table": "2d-pde-error"}
    assert other.part(**part) == plan.part(**part)


def test_another_figure_draws_that_figure_alone(plan: Plan) -> None:
    figure = plan.config.figures["1d-pde-addnoise"].model_copy(update={"noise_std": [0.3, 0.7]})
    other = varied(plan, figures=plan.config.figures | {"1d-pde-addnoise": figure})
    names = [*plan.figures(), *plan.pictures()]
    differ = [name for name in names if plan.figure(name) != other.figure(name)]
    assert differ == ["1d-pde-addnoise"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"problem": "diffusion9d"}, "diffusion9d"),
        ({"methods": ["gnn"]}, "gnn"),
        ({"problem": "elliptic_sde2d_k"}, "elliptic_sde2d_k is a problem of the paper"),
    ],
)
def test_a_name_without_a_file_or_of_the_paper_is_refused(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    taken = {"data": {"file": "a.npz", "input": "a", "output": "p"}, "training": 800}
    overlay = {"problems": {"elliptic_sde2d_k": taken}, "experiments": {"darcy": values}}
    (tmp_path / "extra.json").write_text(json.dumps(overlay))
    with pytest.raises(ConfigError, match=message):
        plan_of(ROOT / "config/own_data.yaml", tmp_path / "extra.json")


def own_plan(path: Path) -> Plan:
    """Return the plan of the example of own data, with the file at a path."""
    found = {"data": {"file": str(path), "test_file": None}}
    path.with_name("mine.json").write_text(json.dumps({"problems": {"darcy": found}}))
    return plan_of(ROOT / "config/own_data.yaml", path.with_name("mine.json"))


def test_own_data_are_known_by_what_is_in_the_file(tmp_path: Path, plan: Plan) -> None:
    file, digests = tmp_path / "runs.npz", []
    for content in (b"one", b"two"):
        file.write_bytes(content)
        file_digest.cache_clear()
        (found,) = own_plan(file).own_files("darcy").items()
        assert found[0] == str(file)
        digests.append(found[1])
    assert digests[0] != digests[1] and not plan.own_files("diffusion1d")
    with pytest.raises(ConfigError, match=r"problems\.darcy\.data: .*absent\.npz: No such file"):
        own_plan(tmp_path / "absent.npz").own_files("darcy")


@pytest.fixture(scope="module")
def with_laws(plan: Plan) -> Plan:
    """A problem of the paper with laws beside its operator."""
    config = plan.config
    chosen = config.experiments["diffusion1d"].model_copy(
        update={"methods": ["uqsonet", "auto", "mixture"], "trials": 3}
    )
    entry = config.recipes["tuned"]["diffusion1d"] | {
        "auto": LawConfig(law_of="uqsonet"),
        "mixture": LawConfig(law_of="uqsonet", law="mixture"),
    }
    return varied(
        plan,
        experiments={"diffusion1d": chosen},
        recipes=config.recipes | {"tuned": config.recipes["tuned"] | {"diffusion1d": entry}},
        tables={},
        figures={},
    )


def test_laws_share_the_training_and_are_named_by_what_they_are_fitted_to(
    plan: Plan, with_laws: Plan
) -> None:
    case = with_laws.config.cases["diffusion1d"]
    paths = with_laws.paths
    for method in ("auto", "mixture"):
        assert paths.trained(case, method, "csv") == paths.trained(case, "uqsonet", "csv")
        # Each trial has a law of its own.
        folder = f"results/law/diffusion1d/tuned/{method}-N10000-uniform-m1-10-noise0"
        assert paths.laws(case, method, "csv") == [f"{folder}/trial{k}.csv" for k in range(3)]
    assert paths.weights(case, "uqsonet") == weights(with_laws, "diffusion1d")
    assert not paths.laws(case, "uqsonet", "csv")
    assert weights(with_laws, "diffusion1d") == weights(plan, "diffusion1d")[:3]
    three = with_laws.config.experiments["diffusion1d"].sensors.only(3)
    changes = {"noise_std": 0.1}, {"training": 5000}, {"sensors": three}
    others = [with_experiment(with_laws, "diffusion1d", **change) for change in changes]
    names = {p.paths.law(p.config.cases["diffusion1d"], "auto") for p in (with_laws, *others)}
    assert len(names) == 4


def test_laws_are_scored_like_trained_methods(with_laws: Plan) -> None:
    case = with_laws.config.cases["diffusion1d"]
    for method in ("uqsonet", "auto", "mixture"):
        told = with_laws.scoring(case, method, "precise")
        assert told["weights"] == with_laws.paths.weights(case, method)
        assert len(told["weights"]) == 3 and told["trained"] == "uqsonet"
    assert with_laws.scoring(case, "baselines", "precise")["weights"] == []
    assert set(with_laws.paths.laws(case, "auto", "csv")) <= with_laws.files()
