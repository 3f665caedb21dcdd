"""Which job is the same as which, and what an edit of the sources makes new."""

import csv
import json
import pickle
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from uqsonet_study.pipeline.sources import WITHOUT_INFLUENCE, Sources, _file_digest
from uqsonet_study.pipeline.specs import RUN_BY, as_json

from uqsonet.errors import ConfigError
from uqsonet_study.cli import read_config
from uqsonet_study.config import LawConfig
from uqsonet_study.pipeline import Plan, Text, model_module, source_digest

ROOT = Path(__file__).resolve().parents[1]
PROBLEM = "uqsonet_study.problems.diffusion1d"
TRAINER, LOOP = "uqsonet.networks.training.trainer", "uqsonet.operator.train"
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
    return plan.trained(case, method, "safetensors")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of()


def test_reasons_of_snakemake_are_short_and_name_what_changed() -> None:
    config = {"shard": 1000, "note": "x" * 500}
    before, now = (as_json(seed=seed, config=config, code="a" * 64) for seed in (1, 2))
    assert repr(before).replace("seed=1", "seed=2") == repr(now) and len(repr(now)) < 100
    assert "config.shard=1000 " in repr(now) and "xxx" not in repr(now)
    assert repr(as_json(seed=1, config=config | {"note": "y" * 500}, code="a" * 64)) != repr(before)
    assert json.loads(now)["config"] == config and isinstance(pickle.loads(pickle.dumps(now)), Text)
    assert len(repr(Text("a,b\n" * 1000))) == 8


def test_each_trial_has_a_job_of_its_own(plan: Plan) -> None:
    jobs = plan.trainings("diffusion1d", "uqsonet")
    assert [job.parameters["trial"] for job in jobs] == list(range(5))
    files = [Path(file) for file in weights(plan, "diffusion1d")]
    assert [file.stem for file in files] == [f"trial_{k}" for k in range(5)]
    assert len({file.parent for file in files}) == 1


def test_models_are_found_by_method_and_architecture() -> None:
    assert model_module("vidon", "attention") == MODEL_OF["attention"]
    assert model_module("vidon", "karhunen_loeve_set") == "uqsonet.networks.vidon"
    for method, message in (("perceptron", "there are"), ("vidon", "no architecture 'karhunen_lo")):
        with pytest.raises(ConfigError, match=message):
            model_module(method, "karhunen_loeve")


def test_a_digest_follows_imports_of_modules_that_count() -> None:
    assert source_digest(RUN_BY["reference"]) != source_digest(RUN_BY["sensors"])
    assert source_digest(["uqsonet_study.config"]) == source_digest(["uqsonet.errors"])
    with pytest.raises(ModuleNotFoundError, match="elsewhere"):
        source_digest(["uqsonet.elsewhere"])
    for module in WITHOUT_INFLUENCE:
        base = ROOT / "src" / Path(*module.split("."))
        assert base.with_suffix(".py").is_file() or (base / "__init__.py").is_file(), module


class Copy:
    """The sources in a copy that may be edited."""

    def __init__(self, root: Path) -> None:
        self.root, self.sources = root, Sources(root)
        self.before = self.digests(self.sources)

    def path(self, module: str) -> Path:
        return self.root.joinpath(*module.split(".")).with_suffix(".py")

    def digests(self, sources: Sources) -> dict[str, str]:
        """Return the digest of every kind of job, of training by architecture."""
        kinds = {rule: [*modules] for rule, modules in RUN_BY.items() if rule != "train"}
        for name, model in MODEL_OF.items():
            kinds[f"train {name}"] = [*RUN_BY["train"], model]
        found = {job: sources.digest([*modules, PROBLEM]) for job, modules in kinds.items()}
        return found | {"figure": sources.digest([FIGURE]), "a law": sources.digest([LAW])}

    def changed(self, *edits: tuple[str, Callable[[str], str]]) -> set[str]:
        """Return the jobs that edits of modules plan; the edits are taken back."""
        kept = {module: self.path(module).read_text() for module, _ in edits}
        for module, edit in edits:
            text = self.path(module).read_text()
            self.path(module).write_text(edit(text))
            assert self.path(module).read_text() != text, "the edit changed nothing"
        sources = Sources(self.root)
        read = sources._read  # every other module is known already, which saves seconds
        sources._module = cache(lambda m: read(m) if m in kept else self.sources._module(m))
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
        (LOOP, first('"starting from scratch', '"anew')),
        (TRAINER, lambda text: text + "\n# a comment\n"),
        (TRAINER, in_other_words),
        (MODEL_OF["karhunen_loeve"], in_other_words),
        ("uqsonet.operator.checkpoint", first("no checkpoint", "none")),
        ("uqsonet.networks.output_basis", in_other_words),
        ("uqsonet.gauss.modes", first("give at most", "allow no more than")),
        (SOLVER, first("from torch", "\n\nfrom torch")),
    )
    without = ("files", "errors")
    of_the_study = ("ship", "report.cards", "storage.arrays")
    modules = [f"uqsonet.{m}" for m in without] + [f"uqsonet_study.{m}" for m in of_the_study]
    assert not copy.changed(*((module, added) for module in modules))
    for path in copy.root.glob("uqsonet/emulator/weights/*.safetensors"):
        path.write_bytes(b"of another day")
    assert not copy.changed((TRAINER, lambda text: text + "\n# a comment\n"))


def test_an_edit_plans_what_it_changes_and_nothing_else(copy: Copy) -> None:
    trainings = {f"train {name}" for name in MODEL_OF}
    iterations = first("progress.iteration += 1", "progress.iteration += 2")
    assert copy.changed((LOOP, iterations)) == trainings
    for name, model in MODEL_OF.items():
        changed = copy.changed((model, added))
        assert trainings & changed == {f"train {name}"}
        # Laws know models by type alone.
        assert "a law" not in changed and "if TYPE_CHECKING:" in copy.path(LAW).read_text()
    assert {"simulate", "reference"} <= copy.changed((SOLVER, added))
    assert copy.changed((STYLE, added)) == {"figure"}


def files_of(plan: Plan) -> dict[str, list[Any]]:
    """Return the files of every case, with all trials of a method as one."""
    found: dict[str, list[Any]] = {}
    for name, case in plan.config.cases.items():
        found[name] = [plan.layouts(name), plan.scores(name)]
        found[name] += [plan.posteriors(name, e) for e in ("validation", *case.evaluations)]
        for method in case.methods:
            found[name].append(plan.training_name(name, plan.base(name, method)))
            judged = plan.validation_case(name, method)
            found[name].append(plan.posteriors(judged, "validation"))
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
        chosen = plan.config.cases[plan.validation_case(case, "uqsonet")]
        assert chosen.noise_std == 0 and len(chosen.sensors.counts) == 10
    (job, *_) = plan.trainings("diffusion1d_noise-noise1", "uqsonet")
    assert job.parameters["noise_std"] == 0
    assert plan.job("train", job.name).spec == job.spec
    with pytest.raises(ConfigError, match=r"needs no train job 'diffusion1d/uqsonet-0/trial_0'"):
        plan.job("train", "diffusion1d/uqsonet-0/trial_0")


def test_people_find_their_files(plan: Plan) -> None:
    rows = list(csv.DictReader(plan.listed().splitlines()))
    name = "diffusion1d_noise-noise0.5"
    mine = {(r["rule"], f"results/{r['file']}") for r in rows if r["case"] == name}
    assert {file for rule, file in mine if rule == "evaluate"} == set(plan.scores(name))
    logs = plan.trained(name, "uqsonet", "csv")
    assert {file for rule, file in mine if rule == "train"} == {*weights(plan, name), *logs}
    assert ("sensors", plan.layouts(name)) in mine
    assert {r["case"] for r in rows} == {c.name for c in plan.config.cases_of(plan.config.selected)}


def test_training_does_not_depend_on_the_number_of_trials(plan: Plan) -> None:
    other = with_experiment(plan, "diffusion1d", trials=9)
    ours, theirs = (p.trainings("diffusion1d", "uqsonet") for p in (plan, other))
    assert ours == theirs[: len(ours)] and len(theirs) == 9
    assert json.loads(ours[0].spec)["trial"] == 0


def test_what_only_an_ablation_reads_is_not_scored_on_test_sets() -> None:
    plan = plan_of(ROOT / "config/ablation.yaml")
    parts = plan.config.tables["parts"].experiments
    assert set(plan.summarised()) == set(parts) < set(plan.config.selected)
    assert set(plan.tables()) == {"ablation", "parts"}
    assert varied(plan, tables={}, figures={}).summarised() == list(plan.config.selected)


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
    assert len({plan.posteriors(name, "precise") for name in sizes}) == 1
    noises = [c.name for c in plan.config.cases_of(["diffusion1d_noise"])]
    assert len({plan.posteriors(name, "precise") for name in noises}) == 5
    assert len({plan.layouts(name) for name in noises}) == 1


def test_members_of_an_ensemble_are_the_trials_of_its_method(plan: Plan) -> None:
    members = weights(plan, "diffusion1d_ensemble", "deep_ensemble")
    assert members == weights(plan, "diffusion1d", "vidon") and len(members) == 5
    jobs = plan.evaluations("diffusion1d_ensemble", "paper")
    (job,) = (j for j in jobs if j.parameters["method"] == "deep_ensemble")
    assert job.inputs["weights"] == members
    ours = {f for f in plan.scores("diffusion1d_ensemble") if "uqsonet" in f}
    assert ours <= set(plan.scores("diffusion1d"))
    assert sum("deep_ensemble" in f for f in plan.scores("diffusion1d_ensemble")) == 2


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
    for case in plan.config.cases:
        for label in plan.config.cases[case].evaluations:
            assert other.evaluations(case, label) == plan.evaluations(case, label)
    table = "uqsonet_study.report.tables.write", ["poisson2d"], "2d-pde-error"
    assert other.report(*table) == plan.report(*table)
    known = {file for case in plan.config.cases for file in plan.scores(case)}
    assert known.isdisjoint(other.scores("diffusion1d_noise-noise2"))


def test_another_figure_draws_that_figure_alone(plan: Plan) -> None:
    figure = plan.config.figures["1d-pde-addnoise"].model_copy(update={"noise_std": [0.3, 0.7]})
    other = varied(plan, figures=plan.config.figures | {"1d-pde-addnoise": figure})
    names = [*plan.figures(), *plan.pictures()]
    differ = [n for n in names if other.figure(n).spec != plan.figure(n).spec]
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
        _file_digest.cache_clear()
        job = own_plan(file).simulation_job("darcy")
        assert job.inputs == {"files": [str(file)]}
        digests.append(job.parameters["files"][str(file)])
    assert digests[0] != digests[1]
    # Layouts stand on the grid of the file; those of the paper's problems need no data.
    mine = own_plan(file)
    assert mine.sensors_job("darcy").inputs == {"functions": "results/own_data/simulate/darcy.h5"}
    assert mine.sensors_job("diffusion1d").inputs == {}
    assert mine.simulation_job("diffusion1d").spec == plan.simulation_job("diffusion1d").spec
    with pytest.raises(ConfigError, match=r"problems\.darcy\.data: .*absent\.npz: No such file"):
        own_plan(tmp_path / "absent.npz").simulation_job("darcy")


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


def test_laws_share_the_training_and_change_no_name(plan: Plan, with_laws: Plan) -> None:
    case = "diffusion1d"
    for method in ("auto", "mixture"):
        assert with_laws.trained(case, method, "csv") == with_laws.trained(case, "uqsonet", "csv")
        # Each trial has a law of its own.
        found = [
            (Path(job.name).name, job.parameters["trial"], Path(job.inputs["weights"][0]).stem)
            for job in with_laws.laws(case, method)
        ]
        assert found == [(f"trial_{k}", k, f"trial_{k}") for k in range(3)]
    assert with_laws.weights(case, "uqsonet") == weights(with_laws, case)
    assert not with_laws.laws(case, "uqsonet") and not with_laws.law_logs(case, "uqsonet")
    assert with_laws.layouts(case) == plan.layouts(case)
    assert with_laws.training_name(case, "uqsonet") == plan.training_name(case, "uqsonet")


def test_a_law_is_named_by_what_it_is_fitted_to(with_laws: Plan) -> None:
    case = "diffusion1d"
    three = with_laws.config.experiments[case].sensors.only(3)
    changes = {"noise_std": 0.1}, {"training": 500}, {"sensors": three}
    others = [with_experiment(with_laws, case, **change) for change in changes]
    names = {with_laws.laws(case, method)[0].name for method in ("auto", "mixture")}
    assert len(names | {other.laws(case, "auto")[0].name for other in others}) == 5
    more = with_experiment(with_laws, case, trials=5).laws(case, "auto")[:3]
    assert more == with_laws.laws(case, "auto")


def test_laws_are_scored_timed_and_listed_like_trained_methods(with_laws: Plan) -> None:
    case = "diffusion1d"
    found = {
        job.parameters["method"]: (job.inputs["weights"], job.parameters["predictors"])
        for job in with_laws.evaluations(case, "precise")
    }
    methods = ("uqsonet", "auto", "mixture")
    assert found == {"baselines": ([], 1)} | {m: (with_laws.weights(case, m), 3) for m in methods}
    timed = with_laws.inference_job(case).inputs["weights"]
    assert timed == [with_laws.weights(case, method)[0] for method in methods]
    listed = {(r["rule"], r["method"]) for r in csv.DictReader(with_laws.listed().splitlines())}
    assert {("law", "auto"), ("law", "mixture"), ("train", "auto")} <= listed
    assert ("law", "uqsonet") not in listed
    (job, *_) = with_laws.laws(case, "auto")
    assert with_laws.job("law", job.name).spec == job.spec
