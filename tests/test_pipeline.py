"""Which job is the same as which, and what an edit of the sources makes new."""

import csv
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from uqsonet.errors import ConfigError
from uqsonet_study.cli import read_config
from uqsonet_study.config import LawConfig
from uqsonet_study.pipeline import Plan, Text, model_module, source_digest
from uqsonet_study.pipeline.sources import WITHOUT_INFLUENCE, Sources
from uqsonet_study.pipeline.specs import RUN_BY, as_json

ROOT = Path(__file__).resolve().parents[1]
PROBLEM = "uqsonet.problems.diffusion1d"
TRAINER, LOOP = "uqsonet.training.trainer", "uqsonet.training.loop"
SOLVER = "uqsonet.solvers.elliptic1d"
ESTIMATOR = "uqsonet.reference.affine"
FIGURE = "uqsonet_study.report.figures.compare"
STYLE = "uqsonet_study.report.figures.style"
MODEL_OF = {name: model_module("uqsonet", name) for name in ("karhunen_loeve", "attention")}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(read_config([ROOT / "config.yaml"]))


def test_reasons_of_snakemake_are_short_and_name_what_changed() -> None:
    config = {"shard": 1000, "note": "x" * 500}
    before, now = (as_json(seed=seed, config=config, code="a" * 64) for seed in (1, 2))
    assert repr(before).replace("seed=1", "seed=2") == repr(now) and len(repr(now)) < 100
    assert "config.shard=1000 " in repr(now) and "xxx" not in repr(now)
    assert repr(as_json(seed=1, config=config | {"note": "y" * 500}, code="a" * 64)) != repr(before)
    assert json.loads(now)["config"] == config and isinstance(pickle.loads(pickle.dumps(now)), Text)
    assert len(repr(Text("a,b\n" * 1000))) == 8


def test_trials_are_cut_into_stacks(plan: Plan) -> None:
    assert plan.stacks("diffusion1d", "uqsonet") == [[k] for k in range(5)]
    jobs = plan.config.jobs.model_copy(update={"trials_per_job": 2})
    pairs = Plan(plan.config.model_copy(update={"jobs": jobs}))
    assert pairs.stacks("diffusion1d", "uqsonet") == [[0, 1], [2, 3], [4]]
    files = [Path(file) for file in weights(pairs, "diffusion1d")]
    assert [file.stem for file in files] == ["trials_0-1", "trials_2-3", "trial_4"]
    assert {file.parent for file in files} == {Path(weights(plan, "diffusion1d")[0]).parent}


def test_models_are_found_by_method_and_architecture() -> None:
    found = {
        model_module(m, a) for m, a in (("vidon", "attention"), ("vidon", "karhunen_loeve_set"))
    }
    assert found == {MODEL_OF["attention"], MODEL_OF["karhunen_loeve"] + "_vidon"}
    with pytest.raises(ConfigError, match="there are"):
        model_module("perceptron", "karhunen_loeve")
    with pytest.raises(ConfigError, match="no architecture 'karhunen_loeve'; there are"):
        model_module("vidon", "karhunen_loeve")


def test_a_digest_follows_imports() -> None:
    assert source_digest(RUN_BY["reference"]) != source_digest(RUN_BY["sensors"])
    assert source_digest(["uqsonet_study.config"]) == source_digest(["uqsonet.errors"])
    with pytest.raises(ModuleNotFoundError, match="elsewhere"):
        source_digest(["uqsonet.elsewhere"])


def test_the_modules_without_influence_are_there() -> None:
    for module in WITHOUT_INFLUENCE:
        base = ROOT / "src" / Path(*module.split("."))
        assert base.with_suffix(".py").is_file() or (base / "__init__.py").is_file(), module


class Copy:
    """The sources in a copy that may be edited."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.before = self.digests()

    def path(self, module: str) -> Path:
        return self.root.joinpath(*module.split(".")).with_suffix(".py")

    def digests(self) -> dict[str, str]:
        """Return the digest of every kind of job, of training by architecture."""
        digest = Sources(self.root).digest
        kinds = {rule: [*modules] for rule, modules in RUN_BY.items() if rule != "train"}
        for name, model in MODEL_OF.items():
            kinds[f"train {name}"] = [*RUN_BY["train"], model]
        found = {job: digest([*modules, PROBLEM]) for job, modules in kinds.items()}
        return found | {"figure": digest([FIGURE])}

    def changed(self, module: str, edit: Callable[[str], str]) -> set[str]:
        """Return the jobs that an edit plans; the edit is taken back."""
        path, before = self.path(module), self.before
        text = path.read_text()
        path.write_text(edit(text))
        assert path.read_text() != text, "the edit changed nothing"
        after = self.digests()
        path.write_text(text)
        return {job for job in before if before[job] != after[job]}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    root = tmp_path_factory.mktemp("sources")
    for package in ("uqsonet", "uqsonet_study"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / package, root / package, ignore=ignored)
    yield Copy(root)


def first(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("module", "edit"),
    [
        ("uqsonet.version", first('"', '"1.')),
        (LOOP, first('"the loss of trial', '"in other words: the loss of trial')),
        (LOOP, first('"starting from scratch', '"anew')),
        (TRAINER, lambda text: text + "\n# a comment\n"),
        (TRAINER, first('"""', '"""In other words. ')),
        (MODEL_OF["karhunen_loeve"], first('"""', '"""In other words. ')),
        ("uqsonet.training.checkpoint", first("no checkpoint", "none")),
        ("uqsonet.models.output_basis", first('"""', '"""In other words. ')),
        ("uqsonet.modes", first("give at most", "allow no more than")),
        ("uqsonet.storage.arrays", lambda text: text + "\nMORE = 1\n"),
        ("uqsonet.errors", lambda text: text + "\nMORE = 1\n"),
        (SOLVER, first("from torch", "\n\nfrom torch")),
    ],
)
def test_words_versions_and_writing_plan_nothing(
    copy: Copy, module: str, edit: Callable[[str], str]
) -> None:
    assert copy.changed(module, edit) == set()


def test_what_is_imported_for_types_alone_plans_nothing(copy: Copy) -> None:
    """Laws know models by type alone, and an edit of a model is no edit of a law."""
    base = "uqsonet.laws.base"
    text = copy.path(base).read_text()
    assert "if TYPE_CHECKING:" in text and "karhunen_loeve" in text
    model, before = copy.path(MODEL_OF["karhunen_loeve"]), Sources(copy.root).digest([base])
    kept = model.read_text()
    model.write_text(added(kept))
    after = Sources(copy.root).digest([base])
    model.write_text(kept)
    assert after == before


def test_weights_and_cards_of_the_package_plan_nothing(copy: Copy) -> None:
    for path in copy.root.glob("uqsonet/weights/*.safetensors"):
        path.write_bytes(b"of another day")
    assert copy.digests() == copy.before
    for module in ("uqsonet_study.ship", "uqsonet_study.report.cards"):
        assert copy.changed(module, added) == set()


def test_a_colour_draws_and_computes_nothing(copy: Copy) -> None:
    assert copy.changed(STYLE, lambda text: text + "\nMORE = '#123456'\n") == {"figure"}


def added(text: str) -> str:
    return text + "\nMORE = 1\n"


def test_an_edit_of_the_iterations_plans_all_trainings_and_nothing_else(copy: Copy) -> None:
    jobs = copy.changed(LOOP, first("progress.iteration += 1", "progress.iteration += 2"))
    assert jobs == {job for job in copy.before if job.startswith("train")} != set()


def test_an_edit_of_a_model_plans_its_trainings_and_no_others(copy: Copy) -> None:
    for name, model in MODEL_OF.items():
        trained = {job for job in copy.changed(model, added) if job.startswith("train")}
        assert trained == {f"train {name}"}


def test_an_edit_of_the_solver_starts_at_the_beginning(copy: Copy) -> None:
    assert {"simulate", "reference"} <= copy.changed(SOLVER, added)


def test_no_name_depends_on_how_the_work_is_done_or_declared(plan: Plan) -> None:
    config = plan.config
    jobs = config.jobs.model_copy(update={"trials_per_job": 5, "checkpoint_minutes": 9})
    experiments = dict(reversed(list(config.experiments.items())))
    others = [
        config.model_copy(update={"experiments": experiments}),
        config.model_copy(update={"experiments": experiments, "select": ["poisson2d"]}),
        config.model_copy(update={"jobs": jobs}),
    ]
    for other in map(Plan, others):
        for name, case in config.cases.items():
            assert other.layouts(name) == plan.layouts(name)
            for method in case.methods:
                base = plan.base(name, method)
                assert other.training_name(name, base) == plan.training_name(name, base)
                assert other.validation_case(name, method) in config.cases
                judged = [
                    p.posteriors(p.validation_case(name, method), "validation")
                    for p in (plan, other)
                ]
                assert judged[0] == judged[1]
            for label in ("validation", *case.evaluations):
                assert other.posteriors(name, label) == plan.posteriors(name, label)
        if other.config.jobs == config.jobs:
            assert {n: other.scores(n) for n in config.cases} == {
                n: plan.scores(n) for n in config.cases
            }


def test_a_training_is_judged_without_noise_on_the_most_counts(plan: Plan) -> None:
    for case in ("diffusion1d_noise-noise1", "diffusion1d_size-n10000", "diffusion1d_ensemble"):
        chosen = plan.config.cases[plan.validation_case(case, "uqsonet")]
        assert chosen.noise_std == 0 and len(chosen.sensors.counts) == 10
    (job, *_) = plan.trainings("diffusion1d_noise-noise1", "uqsonet")
    assert job.parameters["noise_std"] == 0
    assert plan.job("train", job.name).spec == job.spec


def test_an_unknown_job_is_refused_by_name(plan: Plan) -> None:
    with pytest.raises(ConfigError, match=r"needs no train job 'diffusion1d/uqsonet-0/trial_0'"):
        plan.job("train", "diffusion1d/uqsonet-0/trial_0")


def test_all_methods_of_a_case_can_be_scored_in_one_job(plan: Plan) -> None:
    jobs = plan.config.jobs.model_copy(update={"methods_together": True})
    other = Plan(plan.config.model_copy(update={"jobs": jobs}))
    (job,) = other.evaluations("diffusion1d", "paper")
    models = [(model["method"], model["weights"]) for model in job.parameters["models"]]
    assert models == [("baselines", 0), ("vidon", 5), ("uqsonet", 5)]
    found = [
        weight
        for part in plan.evaluations("diffusion1d", "paper")
        for weight in part.inputs["weights"]
    ]
    assert job.inputs["weights"] == found


def test_people_find_their_files(plan: Plan) -> None:
    rows = list(csv.DictReader(plan.listed().splitlines()))
    mine = {
        (r["rule"], f"results/{r['file']}")
        for r in rows
        if r["case"] == "diffusion1d_noise-noise0.5"
    }
    name = "diffusion1d_noise-noise0.5"
    assert {file for rule, file in mine if rule == "evaluate"} == set(plan.scores(name))
    assert {file for rule, file in mine if rule == "train"} == {
        *weights(plan, name),
        *plan.trained(name, "uqsonet", "csv"),
    }
    assert ("sensors", plan.layouts(name)) in mine
    assert {r["case"] for r in rows} == {c.name for c in plan.config.cases_of(plan.config.selected)}


def test_training_does_not_depend_on_the_number_of_trials(plan: Plan) -> None:
    changed = plan.config.experiments["diffusion1d"].model_copy(update={"trials": 9})
    experiments = plan.config.experiments | {"diffusion1d": changed}
    other = Plan(plan.config.model_copy(update={"experiments": experiments}))
    ours, theirs = (p.trainings("diffusion1d", "uqsonet") for p in (plan, other))
    assert ours == theirs[: len(ours)] and len(theirs) == 9
    assert json.loads(ours[0].spec)["trials"] == [0]


def test_what_only_an_ablation_reads_is_not_scored_on_test_sets() -> None:
    config = read_config([ROOT / "config.yaml", ROOT / "config/ablation.yaml"])
    plan = Plan(config)
    parts = config.tables["parts"].experiments
    assert set(plan.summarised()) == set(parts) < set(config.selected)
    assert set(plan.tables()) == {"ablation", "parts"}
    alone = Plan(config.model_copy(update={"tables": {}, "figures": {}}))
    assert alone.summarised() == list(config.selected)


def test_tables_of_the_paper_come_first(plan: Plan) -> None:
    tables = dict(reversed(list(plan.config.tables.items())))
    names = list(Plan(plan.config.model_copy(update={"tables": tables})).tables())
    assert names[-1] == "scores" and names[:-1] == [n for n in tables if n != "scores"]


def weights(plan: Plan, case: str, method: str = "uqsonet") -> list[str]:
    return plan.trained(case, method, "safetensors")


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
    (job,) = (j for j in jobs if j.parameters["models"][0]["method"] == "deep_ensemble")
    assert job.inputs["weights"] == members
    ours = {f for f in plan.scores("diffusion1d_ensemble") if "uqsonet" in f}
    assert ours <= set(plan.scores("diffusion1d"))
    assert sum("deep_ensemble" in f for f in plan.scores("diffusion1d_ensemble")) == 2


def test_the_papers_recipe_trains_for_each_noise_and_count() -> None:
    plan = Plan(read_config([ROOT / "config.yaml", ROOT / "config/paper.yaml"]))
    found = {
        file for c in plan.config.cases_of(["diffusion1d_noise"]) for file in weights(plan, c.name)
    }
    assert len(found) == 5 * 2 * 5
    same = weights(plan, "diffusion1d_size-n10000-m3"), weights(plan, "diffusion1d_latent-dz10-m3")
    assert same[0] == same[1]  # d_z = 10 is the recipe's own


def test_selecting_an_experiment_renames_nothing(plan: Plan) -> None:
    chosen = Plan(plan.config.model_copy(update={"select": ["diffusion1d_noise"]}))
    assert weights(chosen, "diffusion1d_noise-noise0.3") == weights(plan, "diffusion1d")
    assert set(chosen.tables()) == {"1d-pde-addnoise-error"}
    assert set(chosen.figures()) == {"1d-pde-addnoise"}
    assert chosen.pictures() == ["diffusion1d_noise_data", "diffusion1d_noise_training"]


def test_one_more_noise_level_changes_no_other_job(plan: Plan) -> None:
    noisy = plan.config.experiments["diffusion1d_noise"]
    noisy = noisy.model_copy(update={"noise_std": [*noisy.noise_levels, 2.0]})
    experiments = plan.config.experiments | {"diffusion1d_noise": noisy}
    other = Plan(plan.config.model_copy(update={"experiments": experiments}))
    for case in plan.config.cases:
        assert other.scores(case) == plan.scores(case)
        for label in plan.config.cases[case].evaluations:
            assert other.evaluations(case, label) == plan.evaluations(case, label)
    assert other.report(
        "uqsonet_study.report.tables.write", ["poisson2d"], table="2d-pde-error"
    ) == (plan.report("uqsonet_study.report.tables.write", ["poisson2d"], table="2d-pde-error"))
    assert set(other.scores("diffusion1d_noise-noise2")).isdisjoint(
        file for case in plan.config.cases for file in plan.scores(case)
    )


def own_plan(path: Path, **data: object) -> Plan:
    """Return the plan of the example of own data, with the file at a path."""
    found = {"data": {"file": str(path), "test_file": None} | data}
    path.with_name("mine.json").write_text(json.dumps({"problems": {"darcy": found}}))
    files = [ROOT / "config.yaml", ROOT / "config/own_data.yaml", path.with_name("mine.json")]
    return Plan(read_config(files))


def test_own_data_are_known_by_what_is_in_the_file(tmp_path: Path, plan: Plan) -> None:
    file = tmp_path / "runs.npz"
    file.write_bytes(b"one")
    mine = own_plan(file)
    job = mine.simulation_job("darcy")
    assert job.inputs == {"files": [str(file)]}
    (tmp_path / "more").mkdir()
    other = tmp_path / "more/runs.npz"
    other.write_bytes(b"two")
    digests = [
        own_plan(f).simulation_job("darcy").parameters["files"][str(f)] for f in (file, other)
    ]
    assert digests[0] == job.parameters["files"][str(file)] != digests[1]
    # Layouts stand on the grid of the file; those of the paper's problems need no data.
    assert mine.sensors_job("darcy").inputs == {"functions": "results/own_data/simulate/darcy.h5"}
    assert mine.sensors_job("diffusion1d").inputs == {}
    assert mine.simulation_job("diffusion1d").spec == plan.simulation_job("diffusion1d").spec
    with pytest.raises(ConfigError, match=r"problems\.darcy\.data: .*absent\.npz: No such file"):
        own_plan(tmp_path / "absent.npz").simulation_job("darcy")


def test_own_data_take_no_name_of_the_paper(tmp_path: Path) -> None:
    taken = {"data": {"file": "a.npz", "input": "a", "output": "p"}, "training": 800}
    overlay = {"problems": {"elliptic_sde2d_k": taken}}
    overlay |= {"experiments": {"darcy": {"problem": "elliptic_sde2d_k"}}}
    (tmp_path / "mine.json").write_text(json.dumps(overlay))
    files = [ROOT / "config.yaml", ROOT / "config/own_data.yaml", tmp_path / "mine.json"]
    with pytest.raises(ConfigError, match="elliptic_sde2d_k is a problem of the paper"):
        Plan(read_config(files))


@pytest.fixture(scope="module")
def with_laws() -> Plan:
    """A problem of the paper with laws beside its operator, two trials a stack."""
    config = read_config([ROOT / "config.yaml"])
    chosen = config.experiments["diffusion1d"].model_copy(
        update={"methods": ["uqsonet", "auto", "mixture"], "trials": 3}
    )
    entry = dict(config.recipes["tuned"]["diffusion1d"])
    entry["auto"] = LawConfig(law_of="uqsonet")
    entry["mixture"] = LawConfig(law_of="uqsonet", law="mixture")
    recipes = config.recipes | {"tuned": config.recipes["tuned"] | {"diffusion1d": entry}}
    update = {"experiments": {"diffusion1d": chosen}, "recipes": recipes, "tables": {}}
    update |= {"jobs": config.jobs.model_copy(update={"trials_per_job": 2}), "figures": {}}
    return Plan(config.model_copy(update=update))


def test_laws_share_the_training_and_change_no_name(plan: Plan, with_laws: Plan) -> None:
    case = "diffusion1d"
    for method in ("auto", "mixture"):
        assert with_laws.trained(case, method, "csv") == with_laws.trained(case, "uqsonet", "csv")
        jobs = with_laws.laws(case, method)
        # Trained in stacks of two, each trial has a law of its own.
        assert [Path(job.name).name for job in jobs] == ["trial_0", "trial_1", "trial_2"]
        assert [job.parameters["trial"] for job in jobs] == [0, 1, 2]
        stacks = [Path(str(job.inputs["weights"][0])).stem for job in jobs]
        assert stacks == ["trials_0-1", "trials_0-1", "trial_2"]
        assert with_laws.weights(case, method) == [
            f"results/law/{job.name}.safetensors" for job in jobs
        ]
    assert with_laws.weights(case, "uqsonet") == with_laws.trained(case, "uqsonet", "safetensors")
    assert not with_laws.laws(case, "uqsonet") and not with_laws.law_logs(case, "uqsonet")
    assert with_laws.layouts(case) == plan.layouts(case)
    assert with_laws.training_name(case, "uqsonet") == plan.training_name(case, "uqsonet")
    ours, theirs = (
        {Path(f).parent for f in p.scores(case) if "uqsonet" in f} for p in (plan, with_laws)
    )
    assert ours == theirs


def test_a_law_is_named_by_what_it_is_fitted_to(with_laws: Plan) -> None:
    case, config = "diffusion1d", with_laws.config
    chosen = config.experiments[case]
    names = {with_laws.laws(case, method)[0].name for method in ("auto", "mixture")}
    for change in ({"noise_std": 0.1}, {"training": 500}, {"sensors": chosen.sensors.only(3)}):
        experiments = {case: chosen.model_copy(update=change)}
        other = Plan(config.model_copy(update={"experiments": experiments}))
        names.add(other.laws(case, "auto")[0].name)
    assert len(names) == 5
    more = Plan(
        config.model_copy(update={"experiments": {case: chosen.model_copy(update={"trials": 5})}})
    )
    assert more.laws(case, "auto")[:3] != with_laws.laws(case, "auto")  # cut into other stacks
    assert [j.name for j in more.laws(case, "auto")[:3]] == [
        j.name for j in with_laws.laws(case, "auto")
    ]


def test_laws_are_scored_timed_and_listed_like_trained_methods(with_laws: Plan) -> None:
    case = "diffusion1d"
    found = [
        (job.parameters["models"][0]["method"], *map(str, job.inputs["weights"]))
        for job in with_laws.evaluations(case, "precise")
    ]
    for method in ("auto", "mixture"):
        (files,) = (f[1:] for f in found if f[0] == method)
        assert list(files) == with_laws.weights(case, method)
    assert with_laws.inference_job(case).inputs["weights"] == [
        with_laws.weights(case, method)[0] for method in ("uqsonet", "auto", "mixture")
    ]
    listed = {(r["rule"], r["method"]) for r in csv.DictReader(with_laws.listed().splitlines())}
    assert {("law", "auto"), ("law", "mixture"), ("train", "auto")} <= listed
    assert ("law", "uqsonet") not in listed
    (job, *_) = with_laws.laws(case, "auto")
    assert with_laws.job("law", job.name).spec == job.spec


def test_all_methods_with_laws_can_be_scored_in_one_job(with_laws: Plan) -> None:
    jobs = with_laws.config.jobs.model_copy(update={"methods_together": True})
    together = Plan(with_laws.config.model_copy(update={"jobs": jobs}))
    (job,) = together.evaluations("diffusion1d", "precise")
    models = [(m["method"], m["weights"], m["predictors"]) for m in job.parameters["models"]]
    assert models == [
        ("baselines", 0, 1),
        ("uqsonet", 2, 3),
        ("auto", 3, 3),
        ("mixture", 3, 3),
    ]
