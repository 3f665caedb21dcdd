"""`uqsonet explore`: the page answers as Python does, by mouse, touch and keyboard, and alone."""

from __future__ import annotations

import csv
import hashlib
import io
import statistics
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page, Playwright, sync_playwright
from typer.testing import CliRunner

import uqsonet
import uqsonet.problems
from tests.browser import OVERFLOW, browser
from tests.own.conftest import Linear
from uqsonet.cli import app
from uqsonet.config import KarhunenLoeveFieldNetwork
from uqsonet.errors import ConfigError
from uqsonet.explore import page, write_page
from uqsonet.fields import Field, Grid
from uqsonet.gaussian import condition
from uqsonet.models.karhunen_loeve_field import KarhunenLoeveFieldModel
from uqsonet.models.perceptrons import ACTIVATIONS
from uqsonet.operator_fields import OperatorFields

ROOT = Path(__file__).parents[1]
EQUAL = 1e-4
"""Of the field's standard deviation before any measurement."""

Sensors = dict[str, list[list[float]]]
"""By field: coordinates, value and noise of each sensor."""


def fitted(kind: str) -> uqsonet.Emulator:
    """Return a user's own model: on scattered points, or of two inputs, one under a logarithm."""
    if kind == "cloud":
        runs = Linear(noise=0.05).runs(300)
    else:
        rng, x = np.random.default_rng(3), np.linspace(0, 1, 31)
        waves = np.sin(np.outer(np.arange(1, 5), 2 * x + 0.3)) / np.arange(1, 5)[:, None]
        a, b = rng.standard_normal((300, 4)), rng.standard_normal((300, 4))
        k = uqsonet.FieldRuns.of(np.exp(0.5 * a @ waves), x[:, None], transform="log", units="W/m")
        f = uqsonet.FieldRuns.of(b @ waves + 1, x[:, None])
        u = a @ np.cumsum(waves, 1) / 10 + b @ waves[::-1] + 0.05 * rng.standard_normal((300, 31))
        runs = uqsonet.Runs({"k": k, "f": f}, {"u": (u, x[:, None])}, name="two inputs")
    return uqsonet.fit(runs, minutes=0, sensors=[5], law="gaussian", noise_std=0.02, bar=False)


@dataclass
class Explored:
    """A page in the browser, and the model that it was made of."""

    page: Page
    model: uqsonet.Emulator
    url: str
    faults: list[str] = field(default_factory=list)

    def open(self, sensors: Sensors) -> None:
        """Open the page by the link of a state."""
        parts = (
            f"{name}=" + ";".join(",".join(map(str, one)) for one in own)
            for name, own in sensors.items()
        )
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}#{'&'.join(parts)}")
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is computed any more."""
        self.page.wait_for_timeout(50)
        self.page.wait_for_selector("body[data-state=ready]", timeout=120_000)

    def saved(self, button: str) -> list[dict[str, str]]:
        """Return a file that the page saves."""
        with self.page.expect_download() as download:
            self.page.click(button)
        return list(csv.DictReader(io.StringIO(download.value.path().read_text())))

    def sensors(self) -> Sensors:
        """Return the sensors that the page has, from the file that it saves."""
        found: Sensors = {}
        for row in self.saved("#csv-sensors"):
            cells = (row[name] for name in ("x", "y", "value", "noise_std") if row.get(name))
            found.setdefault(row["field"], []).append([float(cell) for cell in cells])
        return found

    def asked(self, sensors: Sensors) -> uqsonet.FieldPosterior:
        """Return Python's answer to sensors."""
        named: dict[str, Any] = {}
        for name, own in sensors.items():
            if own:
                rows = np.array(own)
                named[name] = rows[:, :-2], rows[:, -2], rows[:, -1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", uqsonet.ObservationWarning)
            return self.model.condition(**named)

    def differences(self, name: str, sensors: Sensors) -> tuple[float, float]:
        """Return how far mean and std of a field are from Python's, in units of its std."""
        one = next(f for f in self.model.inputs + self.model.outputs if f.name == name)
        rows = [row for row in self.saved("#csv-result") if row["field"] == name]
        points = np.array([[float(row[axis]) for axis in "xy"[: one.domain.dim]] for row in rows])
        assert len(rows) > 30
        posterior, prior = self.asked(sensors)[name], self.model.condition()[name]
        size = float(np.asarray(prior.std(points)).max())
        found = []
        for what in ("mean", "std"):
            ours = np.array([float(row[what]) for row in rows])
            found.append(float(np.abs(ours - getattr(posterior, what)(points)).max()) / size)
        return found[0], found[1]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield launched(playwright)


def launched(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])


def explored(
    chromium: Browser, model: uqsonet.Emulator, path: Path, width: int = 1200, **options: Any
) -> Explored:
    if not path.exists():
        write_page(model, path, path.stem)
    opened = chromium.new_page(viewport={"width": width, "height": 900}, **options)
    found = Explored(opened, model, path.as_uri())
    opened.on("console", lambda message: found.faults.append(message.text))
    opened.on("pageerror", lambda error: found.faults.append(str(error)))
    opened.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((found.url, "about:", "blob:"))
            else found.faults.append(request.url)
        ),
    )
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def models() -> dict[str, uqsonet.Emulator]:
    own = {kind: fitted(kind) for kind in ("cloud", "two inputs")}
    names = "diffusion1d", "navier_stokes", "elliptic_sde1d"
    return own | {name: uqsonet.load(name) for name in names}


def activated(kind: str) -> uqsonet.Emulator:
    """Return the model of section 4.1 with another activation than it was trained with."""
    found = uqsonet.load("diffusion1d")
    operator: Any = found.operator
    operator.config = operator.config.model_copy(update={"activation": kind})
    operator.network.activation = ACTIVATIONS[kind]
    return found


@pytest.fixture
def diffusion(
    chromium: Browser, models: dict[str, uqsonet.Emulator], folder: Path
) -> Iterator[Explored]:
    found = explored(chromium, models["diffusion1d"], folder / "diffusion1d.html")
    yield found
    found.page.close()
    assert not found.faults


INPUTS: dict[str, Sensors] = {
    "diffusion1d": {"k": [[-0.5, 0.7, 0.0], [0.31, 1.4, 0.05], [0.33, 1.5, 0.0]]},
    "elliptic_sde1d": {"k": [[-0.5, 0.7, 0.0], [0.31, 1.4, 0.05]]},
    "navier_stokes": {"w_0": [[0.2, 0.3, 0.4, 0.0], [0.97, 0.6, -0.1, 0.1]]},
    "cloud": {"a": [[0.2, 0.3, 0.4, 0.0], [0.7, 0.6, -0.2, 0.1]]},
    "two inputs": {"k": [[0.2, 1.4, 0.0], [0.9, 0.8, 0.1]], "f": [[0.5, 1.2, 0.05]]},
}
EITHER: dict[str, Sensors] = {
    "cloud": {"a": [[0.2, 0.3, 0.4, 0.0]], "p": [[0.6, 0.4, 0.3, 0.02], [0.1, 0.8, -0.5, 0.0]]},
    "two inputs": {"k": [[0.2, 1.4, 0.0]], "u": [[0.4, 0.3, 0.01]]},
}


@pytest.mark.parametrize("name", INPUTS)
def test_mean_and_std_are_those_of_python(
    name: str, chromium: Browser, models: dict[str, uqsonet.Emulator], folder: Path
) -> None:
    found = explored(chromium, models[name], folder / f"{name}.html")
    fields = [f.name for f in found.model.inputs + found.model.outputs if not f.transform.positive]
    nothing: Sensors = {next(iter(INPUTS[name])): []}
    for sensors in (nothing, INPUTS[name], EITHER.get(name, nothing)):
        found.open(sensors)
        for one in fields:
            differences = found.differences(one, sensors)
            print(name, one, len(sensors), differences)
            assert max(differences) < EQUAL
    assert not found.faults
    found.page.close()


def test_arrays_that_are_rounded(
    chromium: Browser, models: dict[str, uqsonet.Emulator], folder: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uqsonet.explore.SMALL", 500)  # as if the modes were large
        found = explored(chromium, models["cloud"], folder / "rounded.html")
    assert '"int16"' in (folder / "rounded.html").read_text()
    found.open(EITHER["cloud"])
    for name in ("a", "p"):
        differences = found.differences(name, EITHER["cloud"])
        print("rounded", name, differences)
        assert max(differences) < EQUAL
    found.page.close()


@pytest.mark.parametrize("kind", ["tanh", "gelu"])
def test_other_activations(kind: str, chromium: Browser, folder: Path) -> None:
    sensors = INPUTS["diffusion1d"]
    found = explored(chromium, activated(kind), folder / f"{kind}.html")
    found.open(sensors)
    assert max(found.differences("u", sensors)) < EQUAL
    found.page.close()


def test_a_field_under_a_logarithm(diffusion: Explored) -> None:
    # Python draws 4,096 functions for its mean; the page has the lognormal law itself.
    sensors = INPUTS["diffusion1d"]
    diffusion.open(sensors)
    assert max(diffusion.differences("k", sensors)) < 0.06
    rows = [row for row in diffusion.saved("#csv-result") if row["field"] == "k"]
    points = np.array([[float(row["x"])] for row in rows])
    law = diffusion.asked(sensors)["k"]
    for end, level in (("lower", 0.025), ("upper", 0.975)):
        ours = np.log([float(row[end]) for row in rows])
        python = np.log(law.quantile(level, points, size=20_000))
        assert np.abs(ours - python).max() < 0.06


def test_sensors_of_a_curved_operator(diffusion: Explored) -> None:
    # Both sample here: they agree as far as 1,000 and 4,096 draws do.
    sensors = {"k": [[-0.5, 0.7, 0.0]], "u": [[0.3, -0.3, 0.01], [-0.6, 0.2, 0.02]]}
    diffusion.open(sensors)
    assert "worth" in diffusion.page.inner_text("#draws")
    free = {"k": sensors["k"], "u": []}
    assert max(diffusion.differences("u", sensors)) < 0.06
    assert diffusion.differences("u", free)[0] > 0.3


def test_the_exact_answer_beside_the_model(diffusion: Explored) -> None:
    # Here: conditioned on the grid, 4,000 draws of k solved by the project's own solver.
    diffusion.open({"k": [[-0.5, 0.7, 0.0], [0.31, 1.4, 0.05]]})
    rows = [row for row in diffusion.saved("#csv-result") if row["field"] == "u (exact)"]
    problem = uqsonet.problems.get_problem("diffusion1d")
    prior = problem.gaussian_prior
    mean, at = prior.rows(torch.tensor([[-0.5], [0.31]]))
    seen = torch.tensor([0.7, 1.4], dtype=torch.float64).log() - mean
    law = condition(at, seen, torch.tensor([0.0, 0.05], dtype=torch.float64), None)
    normal = torch.randn(4000, at.shape[1], generator=torch.Generator().manual_seed(5)).double()
    u = problem.solve(prior.field(law.coordinates(normal)).exp())
    size = float(u.std(0).max())
    for what, found in (("mean", u.mean(0)), ("std", u.std(0))):
        ours = np.array([float(row[what]) for row in rows])
        assert np.abs(ours - found.numpy()).max() < 0.06 * size
    diffusion.open({"k": [], "u": [[0.3, -0.3, 0.01]]})  # it answers to sensors of k alone
    assert all(row["field"] != "u (exact)" for row in diffusion.saved("#csv-result"))


def test_dragging_changes_the_mean_to_that_of_python(diffusion: Explored) -> None:
    diffusion.open({"k": [[-0.5, 0.7, 0.0], [0.4, 1.4, 0.0]]})
    before = diffusion.saved("#csv-result")
    x, y = middle(diffusion.page, 1)
    frames = dragged(diffusion.page, x, y, 60, 30)
    print(f"1D: {frames:.0f} frames a second")
    assert frames > 8  # on a busy machine; 30 and more on an idle one
    diffusion.settle()
    sensors = diffusion.sensors()
    assert sensors["k"][0] == [-0.5, 0.7, 0.0]
    assert sensors["k"][1][0] > 0.45 and sensors["k"][1][1] < 1.3
    after = diffusion.saved("#csv-result")
    moved = [abs(float(a["mean"]) - float(b["mean"])) for a, b in zip(before, after, strict=True)]
    assert max(moved) > 0.05
    assert max(diffusion.differences("u", sensors)) < EQUAL


def middle(page: Page, number: int) -> tuple[float, float]:
    """Return where a sensor is on the screen."""
    box = page.locator(".sensor .dot").nth(number).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def dragged(page: Page, x: float, y: float, right: float, down: float) -> float:
    """Drag by the mouse, to and fro and then there; return the median of frames a second."""
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate("performance.clearMarks()")
    for place in ((-right, -down), (0, 0), (right, down)):
        page.mouse.move(x + place[0], y + place[1], steps=40)
    page.mouse.up()
    times = page.evaluate("performance.getEntriesByName('drawn').map((mark) => mark.startTime)")
    assert len(times) > 10
    return 1000 / statistics.median(b - a for a, b in pairwise(times))


def test_dragging_on_a_map(
    chromium: Browser, models: dict[str, uqsonet.Emulator], folder: Path
) -> None:
    path = folder / "navier_stokes.html"
    found = explored(chromium, models["navier_stokes"], path)
    assert path.stat().st_size < 10e6
    found.open({"w_0": [[0.3, 0.3, 0.4, 0.0], [0.7, 0.6, -0.2, 0.1]]})
    assert len(found.saved("#csv-result")) == 2 * 64 * 64
    x, y = middle(found.page, 0)
    frames = dragged(found.page, x, y, 40, -40)
    print(f"2D: {frames:.0f} frames a second")
    assert frames > 3  # on a busy machine; 10 and more on an idle one
    found.settle()
    sensors = found.sensors()
    assert sensors["w_0"][0][:2] != [0.3, 0.3] and sensors["w_0"][0][2:] == [0.4, 0.0]
    assert max(found.differences("w", sensors)) < EQUAL
    assert not found.faults
    found.page.close()


def test_by_keyboard_alone(diffusion: Explored) -> None:
    diffusion.open({"k": [[-0.5, 0.7, 0.0], [0.4, 1.4, 0.0]]})
    keyboard = diffusion.page.keyboard
    keyboard.press("Tab")  # the first sensor
    label = "document.activeElement.getAttribute('aria-label')"
    assert diffusion.page.evaluate(label) == "Sensor 1 of k"
    for key in ("ArrowRight", "Shift+ArrowRight", "ArrowUp"):
        keyboard.press(key)
    diffusion.settle()
    sensors = diffusion.sensors()
    assert sensors["k"][0][0] == pytest.approx(-0.28, abs=0.002) and sensors["k"][0][1] > 0.7
    assert max(diffusion.differences("u", sensors)) < EQUAL
    diffusion.page.focus(".sensor")
    keyboard.press("Tab")
    keyboard.press("Delete")
    diffusion.settle()
    assert len(diffusion.sensors()["k"]) == 1
    diffusion.page.focus(".sensor")
    keyboard.press("Enter")  # to the table: value, then noise
    keyboard.press("ControlOrMeta+a")
    keyboard.type("2.5")
    keyboard.press("Tab")
    keyboard.type("0.25")
    keyboard.press("Tab")
    diffusion.settle()
    assert diffusion.sensors()["k"][0][1:] == [2.5, 0.25]
    diffusion.page.focus("#add-1")
    keyboard.press("Enter")
    diffusion.settle()
    assert diffusion.page.evaluate(label) == "Sensor 1 of u"
    assert len(diffusion.sensors()["u"]) == 1
    assert "1 of k and 1 of u" in diffusion.page.inner_text("#summary")


def test_what_is_typed_wrong_is_refused_in_words(diffusion: Explored) -> None:
    diffusion.open({"k": [[-0.5, 0.7, 0.0], [0.4, 1.4, 0.0]]})
    row = diffusion.page.locator("tbody tr").first
    for name, wrong, words in (
        ("value", "-1", "value: above 0"),
        ("noise", "-0.1", "noise: 0 or more"),
        ("x", "2", "x: from -1 to 1"),
    ):
        entry = row.locator(f'input[name="{name}"]')
        entry.fill(wrong)
        diffusion.page.keyboard.press("Tab")
        assert row.locator(".refused").inner_text().strip() == words
        assert entry.get_attribute("aria-invalid") == "true"
    assert diffusion.sensors()["k"][0] == [-0.5, 0.7, 0.0]
    diffusion.page.focus(".sensor")
    diffusion.page.keyboard.press("ArrowRight")  # the table shows what holds again
    diffusion.settle()
    assert row.locator(".refused").inner_text() == ""
    assert row.locator('[aria-invalid="true"]').count() == 0


def test_a_link_restores_the_state(diffusion: Explored) -> None:
    diffusion.open({"k": [[-0.5, 0.7, 0.0]]})
    diffusion.page.click("#add-0")
    diffusion.settle()
    link, sensors = diffusion.page.url, diffusion.sensors()
    assert len(sensors["k"]) == 2
    diffusion.page.goto("about:blank")
    diffusion.page.goto(link)
    diffusion.settle()
    assert diffusion.sensors() == sensors
    # A damaged link shows the example instead of an error.
    diffusion.page.goto("about:blank")
    diffusion.page.goto(f"{diffusion.url}#k=1,2;a&<b>")
    diffusion.settle()
    assert len(diffusion.sensors()["k"]) == 3


def test_on_a_phone(chromium: Browser, models: dict[str, uqsonet.Emulator], folder: Path) -> None:
    for name in ("cloud", "two inputs", "diffusion1d", "navier_stokes"):
        path = folder / f"{name}.html"
        options = {"has_touch": True, "is_mobile": True, "color_scheme": "dark"}
        found = explored(chromium, models[name], path, 390, **options)
        found.open(INPUTS[name])
        assert found.page.evaluate(OVERFLOW) <= 0, name
        background = "getComputedStyle(document.body).backgroundColor"
        assert found.page.evaluate(background) == "rgb(20, 23, 27)"
        rows = found.page.locator("tbody tr")
        before = rows.count()
        box = found.page.locator(".plot svg").first.bounding_box()
        assert box is not None
        found.page.touchscreen.tap(box["x"] + 0.6 * box["width"], box["y"] + 0.3 * box["height"])
        rows.nth(before).wait_for()  # a tap adds a sensor
        found.settle()
        assert rows.count() == before + 1
        # A finger moves the first sensor, and the page does not scroll.
        found.page.evaluate("scrollTo(0, 0)")
        x, y = middle(found.page, 0)
        touch = found.page.context.new_cdp_session(found.page)
        for kind, by in (("touchStart", 0), ("touchMove", 20), ("touchMove", 45), ("touchEnd", 0)):
            points = [] if kind == "touchEnd" else [{"x": x + by, "y": y + by}]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        found.settle()
        assert found.page.evaluate("scrollY") == 0
        field, own = next(iter(INPUTS[name].items()))
        assert found.sensors()[field][0][0] > own[0][0] + 0.05
        assert not found.faults
        found.page.close()


def test_where_the_next_sensor_helps_most(
    chromium: Browser, models: dict[str, uqsonet.Emulator], folder: Path
) -> None:
    # Of a linear model the share can be had by putting a sensor there, whatever it reads.
    found = explored(chromium, models["cloud"], folder / "cloud.html")
    sensors: Sensors = {"a": [[0.2, 0.3, 0.4, 0.02]], "p": [[0.6, 0.4, 0.3, 0.02]]}
    found.open(sensors)
    remainder = found.model.remainder
    assert remainder is not None
    left = (remainder.double() * found.model.outputs[0].scale).square().numpy()

    def mean_variance(sensors: Sensors) -> float:
        return float((found.asked(sensors).std() ** 2 - left).mean())

    before = mean_variance(sensors)
    for number, (name, noise) in enumerate((("a", 0.02), ("p", 0.0))):
        found.page.select_option("#gain-field", str(number))
        found.page.check("#gain")
        found.settle()
        rows = [row for row in found.saved("#csv-result") if row["field"] == name]
        best = max(rows, key=lambda row: float(row["next_sensor"]))
        for row in (rows[500], best):
            more = [float(row["x"]), float(row["y"]), 0.1, noise]
            share = 1 - mean_variance({**sensors, name: [*sensors[name], more]}) / before
            assert float(row["next_sensor"]) == pytest.approx(share, abs=1e-4)
        assert f"{100 * float(best['next_sensor']):.2g} %" in found.page.inner_text("#gain-text")
    found.page.click("#add-best")
    found.settle()
    assert len(found.sensors()["p"]) == 2
    assert not found.faults
    found.page.close()


def test_the_command_writes_a_page_without_secrets_or_holes(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["explore", "diffusion1d", "-o", str(out)])
    assert done.exit_code == 0, done.output
    text = out.read_text(encoding="utf-8")
    assert len(text) < 2e6
    assert "default-src 'none'" in text and "unsafe" not in text.partition("</head>")[0]
    assert text.count("<script") == 2


def test_the_program_was_built_from_its_sources() -> None:
    sources = [*sorted((ROOT / "explore").glob("src/*")), ROOT / "explore/package-lock.json"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    built = (ROOT / "src/uqsonet/web/explore.js").read_text(encoding="utf-8")
    assert built.startswith(f"// {digest}\n"), "run `make explore`"
    for name in ("diffusion1d", "navier_stokes"):
        assert built in (ROOT / f"docs/explore/{name}.html").read_text(encoding="utf-8")


def test_what_cannot_be_explored_is_said(models: dict[str, uqsonet.Emulator]) -> None:
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 12)
    k = np.sign(rng.standard_normal((60, 1))) * (1 + x) + 0.1 * rng.standard_normal((60, 12))
    runs = uqsonet.Runs({"k": (k, x[:, None])}, {"u": (np.cumsum(k, 1), x[:, None])})
    other = uqsonet.fit(runs, minutes=0, sensors=[3], law="analogue", bar=False)
    with pytest.raises(ConfigError, match="law 'analogue' cannot be explored"):
        page(other, "other")
    cokriging = models["cloud"].cokriging
    assert cokriging is not None
    with pytest.raises(ConfigError, match="only Karhunen-Loeve models"):
        page(models["cloud"].with_operator(cokriging), "cokriging")
    done = CliRunner().invoke(app, ["explore", "diffusion1d", "-o", "page.txt"])
    assert done.exit_code == 1 and "page.txt: pages are written as .html" in done.output


def test_a_page_that_is_too_large_is_refused(
    models: dict[str, uqsonet.Emulator], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = write_page(models["two inputs"], tmp_path / "fits.html", "two")
    monkeypatch.setattr("uqsonet.explore.MOST_BYTES", size)
    assert write_page(models["two inputs"], tmp_path / "fits.html", "two") == size
    monkeypatch.setattr("uqsonet.explore.MOST_BYTES", size - 1)
    with pytest.raises(ConfigError, match=rf"two would have {size / 1e6:.1f} MB.*k \(\d+ points"):
        write_page(models["two inputs"], tmp_path / "large.html", "two")
    assert not (tmp_path / "large.html").exists()


def test_a_branch_that_reads_fields_is_refused(models: dict[str, uqsonet.Emulator]) -> None:
    grid = Grid((0.0, 0.0), (1.0, 1.0), (8, 8))
    fields = OperatorFields("maps", Field("k", grid), Field("u", grid))
    network = KarhunenLoeveFieldNetwork(input_modes=4, output_modes=4, branch=[4])
    operator = KarhunenLoeveFieldModel(fields, network, 0.0).eval()
    with pytest.raises(ConfigError, match="architecture 'karhunen_loeve_field' cannot"):
        page(models["cloud"].with_operator(operator), "maps")
