from __future__ import annotations

import dataclasses
from pathlib import Path

import matplotlib as mpl
import pytest
import torch

from tests.report.conftest import COUNTS, make_config
from uqsonet.config import Config, ProblemConfig, ReferenceConfig, SensorsConfig
from uqsonet.errors import DataError
from uqsonet.layouts import generate_layouts
from uqsonet.nn.base import build_model
from uqsonet.problems import get_problem
from uqsonet.reference import compute_reference
from uqsonet.report.figures import posterior_figure, training_figure
from uqsonet.report.style import STYLE, new_figure, save, styled
from uqsonet.simulation import load_functions, simulate
from uqsonet.storage import write_weights

NOISE = 0.1


@dataclasses.dataclass(frozen=True)
class Inputs:
    config: Config
    functions: Path
    reference: Path
    weights: Path


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A linear-Gaussian problem with an untrained model, which is already close to exact."""
    folder = tmp_path_factory.mktemp("figure")
    functions, sensors = folder / "functions.h5", folder / "sensors.h5"
    reference, weights = folder / "paper.h5", folder / "weights.safetensors"
    config = make_config(
        problems={"toy_linear": {"training": 50, "validation": 4, "test": 6}},
        experiment={"problem": "toy_linear", "methods": ["uqsonet"], "noise_std": NOISE},
    )
    simulate("toy_linear", ProblemConfig(training=50, validation=2, test=4, shard=50), 0, functions)
    generate_layouts("toy_linear", SensorsConfig(counts=COUNTS, pool=5), 0, 2, 4, sensors)
    used = ReferenceConfig(sets=3, reference_samples=200)
    compute_reference(functions, sensors, "test", "paper", used, NOISE, 0, reference)
    method = config.method_of("e_1", "uqsonet")
    torch.manual_seed(0)
    model = build_model("uqsonet", "toy_linear", method.network, NOISE)
    with torch.no_grad():
        model.fit_constants(load_functions(functions, "training"))
    names = dict(model.named_parameters())
    tensors = {
        f"parameter/{k}" if k in names else f"buffer/{k}": v[None] if k in names else v
        for k, v in model.state_dict().items()
    }
    meta = {"method": "uqsonet", "problem": "toy_linear", "noise_std": NOISE, "trials": [0]}
    write_weights(weights, tensors, meta | {"config": method.model_dump(mode="json")})
    return Inputs(config, functions, reference, weights)


def draw(inputs: Inputs, folder: Path) -> tuple[bytes, bytes]:
    pdf, png = folder / "p.pdf", folder / "p.png"
    files = inputs.functions, inputs.reference, inputs.weights
    posterior_figure("e_1", inputs.config, *files, pdf, png)
    return pdf.read_bytes(), png.read_bytes()


def write_log(path: Path, trial: int, text: str = "0.5") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "trial,iteration,seconds,learning_rate,loss,reconstruction,kl,skill_mean_1,skill_std_1\n"
        f"{trial},100,1,0.1,20,12,8,-3,0.1\n{trial},200,2,0,1,0.6,0.4,{text},0.2\n"
    )
    return path


def test_posterior_figure_repeats_byte_by_byte(inputs: Inputs, tmp_path: Path) -> None:
    first = draw(inputs, tmp_path)
    assert first[0].startswith(b"%PDF") and first[1].startswith(b"\x89PNG")
    assert draw(inputs, tmp_path) == first
    assert not list(tmp_path.glob(".*"))


def test_the_readers_own_settings_change_nothing(inputs: Inputs, tmp_path: Path) -> None:
    first = draw(inputs, tmp_path)
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "pdf.fonttype": 3}):
        assert draw(inputs, tmp_path) == first


def test_pdf_has_truetype_fonts_and_no_date(inputs: Inputs, tmp_path: Path) -> None:
    pdf, _ = draw(inputs, tmp_path)
    assert b"/Type3" not in pdf and b"CreationDate" not in pdf


@pytest.mark.parametrize("counts", [[1], [1, 3]])
def test_any_number_of_panels(inputs: Inputs, tmp_path: Path, counts: list[int]) -> None:
    one = inputs.config.experiments["e_1"].model_copy(update={"figure_counts": counts})
    config = inputs.config.model_copy(update={"experiments": {"e_1": one}})
    draw(dataclasses.replace(inputs, config=config), tmp_path)


def test_a_missing_set_is_named(inputs: Inputs, tmp_path: Path) -> None:
    one = inputs.config.experiments["e_1"].model_copy(update={"figure_counts": [2]})
    config = inputs.config.model_copy(update={"experiments": {"e_1": one}})
    with pytest.raises(DataError, match="0 observation sets with 2 sensors"):
        draw(dataclasses.replace(inputs, config=config), tmp_path)


def test_two_dimensional_problems_are_refused(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = get_problem("toy_linear")
    flat = dataclasses.replace(problem.grid, lower=(0, 0), upper=(1, 1), shape=(3, 11))
    monkeypatch.setitem(vars(problem), "grid", flat)
    with pytest.raises(DataError, match="one variable"):
        draw(inputs, tmp_path)


def test_training_figure_repeats_byte_by_byte(tmp_path: Path) -> None:
    logs = [write_log(tmp_path / "uqsonet" / f"stack_{k}.csv", k) for k in range(2)]
    plain = tmp_path / "vidon" / "stack_0.csv"
    plain.parent.mkdir()
    plain.write_text(
        "trial,iteration,seconds,learning_rate,loss,reconstruction,skill_mean_1,skill_mean_2\n"
        "0,10,1,0,-2,-2,0.1,0.3\n"
    )
    found = []
    for name in "ab":
        pdf, png = tmp_path / f"{name}.pdf", tmp_path / f"{name}.png"
        training_figure([*logs, plain], pdf, png)
        found.append((pdf.read_bytes(), png.read_bytes()))
    assert found[0] == found[1]


def test_training_figure_refuses_nan(tmp_path: Path) -> None:
    log = write_log(tmp_path / "uqsonet" / "stack_0.csv", 0, "nan")
    with pytest.raises(DataError, match=r"stack_0\.csv: row 2 .*skill_mean_1"):
        training_figure([log], tmp_path / "t.pdf", tmp_path / "t.png")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_training_figure_refuses_foreign_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=r"x\.csv"):
        training_figure([tmp_path / "x.csv"], tmp_path / "t.pdf", tmp_path / "t.png")


def test_style_does_not_leak(tmp_path: Path) -> None:
    before = mpl.rcParams["font.size"]
    with styled():
        assert mpl.rcParams["font.size"] == STYLE["font.size"]
        figure = new_figure(1.0)
    save(figure, tmp_path / "a.pdf", tmp_path / "a.png")
    assert mpl.rcParams["font.size"] == before
