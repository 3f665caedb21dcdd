"""`uqsonet explore`: the page answers as Python does, by mouse, touch and keyboard, and alone."""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from typer.testing import CliRunner

import uqsonet
from tests.browser import OVERFLOW, UNREADABLE, browser
from tests.own.conftest import Linear, waves
from uqsonet.cli import app
from uqsonet.errors import ConfigError
from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.operator.baselines import Cokriging
from uqsonet.show.explore import page, write_page
from uqsonet_study.beyond.field_operator import KarhunenLoeveFieldModel
from uqsonet_study.settings import KarhunenLoeveFieldNetwork

ROOT = Path(__file__).parents[1]
EQUAL = 1e-4
ROUNDED = 5e-4  # with the modes in 16 bits
"""Of the field's standard deviation before any measurement."""

Sensors = dict[str, list[list[float]]]
"""By field: coordinates, value and noise of each sensor."""


def fitted(kind: str) -> uqsonet.Emulator:
    """Return a user's own model: scattered points, an aquifer, two inputs, or with a kernel."""
    if kind == "cloud":
        runs = Linear(noise=0.05).runs(300)
    elif kind == "aquifer":
        runs = aquifer()
    elif kind == "kernel":
        x = np.linspace(0, 1, 31)
        a = np.random.default_rng(4).standard_normal((200, 3)) @ np.cos(np.outer(range(3), 3 * x))
        runs = uqsonet.Runs({"a": a}, {"u": np.tanh(a) + 0.3 * np.cumsum(a, 1) / 31})
    else:
        rng, x = np.random.default_rng(3), np.linspace(0, 1, 31)
        waves = np.sin(np.outer(np.arange(1, 5), 2 * x + 0.3)) / np.arange(1, 5)[:, None]
        a, b = rng.standard_normal((300, 4)), rng.standard_normal((300, 4))
        k = uqsonet.FieldRuns.of(np.exp(0.5 * a @ waves), x[:, None], transform="log", units="W/m")
        f = uqsonet.FieldRuns.of(b @ waves + 1, x[:, None])
        u = a @ np.cumsum(waves, 1) / 10 + b @ waves[::-1] + 0.05 * rng.standard_normal((300, 31))
        runs = uqsonet.Runs({"k": k, "f": f}, {"u": (u, x[:, None])}, name="two inputs")
    return uqsonet.fit(runs, sensors=[5], law="gaussian", noise_std=0.02, bar=False)


def aquifer() -> uqsonet.Runs:
    """Return runs that are hard to show: long names, small values, large coordinates, no square.

    A corner of the grid and its last column have no values, and one output is a single number.
    """
    axes = [452_000.3 + 75 * np.arange(21.0), 5_412_000.7 + 50 * np.arange(17.0)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    xi = np.random.default_rng(0).standard_normal((200, 4))
    k, h = (xi @ waves((points - points[0]) / 800, 4, seed).T for seed in (1, 2))
    dry = (points[:, 0] > 453_000) & (points[:, 1] > 5_412_400) | (points[:, 1] > 5_412_790)
    of = uqsonet.FieldRuns.of
    k, h = (np.where(dry, np.nan, one) for one in (2e-5 * np.exp(0.5 * k), 60 + h))
    return uqsonet.Runs(
        {"hydraulic_conductivity_of_the_upper_aquifer": of(k, points, units="m/s")},
        {
            "hydraulic_head_above_mean_sea_level": of(h, points, units="m"),
            "largest_drawdown": of(np.nanmin(h, 1, keepdims=True) - 60, units="m"),
        },
        name="aquifer",
    )


@dataclass
class Explored:
    """A page in the browser, and the model that it was made of."""

    page: Page
    model: uqsonet.Emulator
    url: str
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

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
        yield playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


Show = Callable[..., Explored]


@pytest.fixture
def show(chromium: Browser, folder: Path) -> Iterator[Show]:
    """Opens pages of models by name; none may complain or ask for anything."""
    shown: list[Explored] = []

    def opened(name: str, width: int = 1200, **options: Any) -> Explored:
        path, model = folder / f"{name}.html", model_of(name)
        if not path.exists():
            write_page(model, path, name)
        window = chromium.new_page(viewport={"width": width, "height": 900}, **options)
        found = Explored(window, model, path.as_uri())
        shown.append(found)
        window.on("console", lambda message: found.faults.append(message.text))
        window.on("pageerror", lambda error: found.faults.append(str(error)))
        window.on("request", lambda request: found.requests.append(request.url))
        return found

    yield opened
    for found in shown:
        found.page.close()
        own = (found.url, "about:", "blob:")
        assert not found.faults
        assert [url for url in found.requests if not url.startswith(own)] == []


@functools.cache
def model_of(name: str) -> uqsonet.Emulator:
    """Return a shipped model, one with another activation, or a user's own."""
    if name in ("cloud", "aquifer", "two inputs", "kernel"):
        return fitted(name)
    if name == "rounded":
        return model_of("cloud")
    if name != "gelu":
        return uqsonet.load(name)
    operator = (found := uqsonet.load("diffusion1d")).operator
    operator.config = operator.config.model_copy(update={"activation": name})
    operator.network.activation = name
    return found


def compare(found: Explored, *states: Sensors, most: float = EQUAL) -> None:
    """Compare mean and std of all fields that have a closed form with those of Python."""
    fields = [f.name for f in found.model.inputs + found.model.outputs if not f.transform.positive]
    for sensors in states:
        found.open(sensors)
        for one in fields:
            assert max(found.differences(one, sensors)) < most, (one, sensors)


def test_the_page_answers_as_python_does(show):
    compare(show("two inputs"), {"k": [[0.2, 1.4, 0.0]], "u": [[0.4, 0.3, 0.01]]})


SENSORS: dict[str, Sensors] = {
    "diffusion1d": {"k": [[-0.5, 0.7, 0.0], [0.31, 1.4, 0.05], [0.33, 1.5, 0.0]]},
    "kernel": {"a": [[0.3, 0.4, 0.0], [0.8, -0.6, 0.05]]},
    "gelu": {"k": [[-0.5, 0.7, 0.0], [0.31, 1.4, 0.05]]},
    "elliptic_sde1d": {"k": [[-0.5, 0.7, 0.0], [0.31, 1.4, 0.05]]},
    "navier_stokes": {"w_0": [[0.2, 0.3, 0.4, 0.0], [0.97, 0.6, -0.1, 0.1]]},
    "cloud": {"a": [[0.2, 0.3, 0.4, 0.0]], "p": [[0.6, 0.4, 0.3, 0.02], [0.1, 0.8, -0.5, 0.0]]},
    "aquifer": {
        "hydraulic_conductivity_of_the_upper_aquifer": [[452_700, 5_412_250, 1.5e-5, 0.02]],
    },
    "rounded": {"a": [[0.2, 0.3, 0.4, 0.0]], "p": [[0.6, 0.4, 0.3, 0.02]]},
}


@pytest.mark.browser
@pytest.mark.parametrize("name", SENSORS)
def test_mean_and_std_are_those_of_python(name, show, folder, monkeypatch):
    if name == "rounded":
        monkeypatch.setattr("uqsonet.show.explore.SMALL", 500)  # as if the modes were large
    assert name != "kernel" or model_of(name).operator.config.kernel > 0
    most = ROUNDED if name == "rounded" else EQUAL
    compare(show(name), {next(iter(SENSORS[name])): []}, SENSORS[name], most=most)
    rounded = '"int16"' in (folder / f"{name}.html").read_text()
    assert rounded == (name == "rounded")


@pytest.mark.browser
def test_what_is_sampled_agrees_as_far_as_sampling_goes(show):
    diffusion = show("diffusion1d")
    # Python draws 4,096 functions for a field under a logarithm; the page has the lognormal law.
    sensors = SENSORS["diffusion1d"]
    diffusion.open(sensors)
    assert max(diffusion.differences("k", sensors)) < 0.06
    rows = [row for row in diffusion.saved("#csv-result") if row["field"] == "k"]
    points = np.array([[float(row["x"])] for row in rows])
    law = diffusion.asked(sensors)["k"]
    for end, level in (("lower", 0.025), ("upper", 0.975)):
        ours = np.log([float(row[end]) for row in rows])
        assert np.abs(ours - np.log(law.quantile(level, points, size=20_000))).max() < 0.06
    # Of a curved operator both sample what sensors of its output say.
    sensors = {"k": [[-0.5, 0.7, 0.0]], "u": [[0.3, -0.3, 0.01], [-0.6, 0.2, 0.02]]}
    diffusion.open(sensors)
    assert "worth" in diffusion.page.inner_text("#draws")
    assert max(diffusion.differences("u", sensors)) < 0.06
    assert diffusion.differences("u", {"k": sensors["k"], "u": []})[0] > 0.3


@pytest.mark.browser
def test_by_keyboard_alone(show):
    diffusion = show("diffusion1d")
    diffusion.open({"k": [[-0.5, 0.7, 0.0], [0.4, 1.4, 0.0]]})
    keyboard = diffusion.page.keyboard
    keyboard.press("Tab")  # the first sensor
    for key in ("ArrowRight", "Shift+ArrowRight", "ArrowUp"):
        keyboard.press(key)
    diffusion.settle()
    sensors = diffusion.sensors()
    assert sensors["k"][0][0] == pytest.approx(-0.28, abs=0.002) and sensors["k"][0][1] > 0.7
    assert max(diffusion.differences("u", sensors)) < EQUAL
    diffusion.page.focus(".sensor")
    for key in ("Tab", "Delete"):  # the second
        keyboard.press(key)
    diffusion.page.focus("#add-1")
    keyboard.press("Enter")
    entry = diffusion.page.locator('input[name="noise"]').first
    entry.fill("-0.1")  # what is typed wrong is refused in words, and the last value holds
    keyboard.press("Tab")
    assert diffusion.page.locator(".refused").first.inner_text().strip() == "noise: 0 or more"
    diffusion.settle()
    sensors = diffusion.sensors()
    assert len(sensors["k"]) == len(sensors["u"]) == 1 and sensors["k"][0][2] == 0.0
    diffusion.page.goto("about:blank")  # a damaged link shows the example
    diffusion.page.goto(f"{diffusion.url}#k=1,2;a&<b>")
    diffusion.settle()
    assert len(diffusion.sensors()["k"]) == 3


@pytest.mark.browser
@pytest.mark.parametrize("name", ["diffusion1d", "aquifer"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_cut_covered_or_beyond_its_card(name, width, show):
    found = show(name, width)
    found.open({})
    for number in range(len(found.model.outputs) + 1):
        found.page.click(f"#add-{number}")
    found.settle()
    assert found.page.evaluate(UNREADABLE) == []
    assert "NaN" not in found.page.inner_text("#page")


@pytest.mark.browser
def test_on_a_phone(show):
    found = show("navier_stokes", 390, has_touch=True, is_mobile=True)
    found.open(SENSORS["navier_stokes"])
    assert found.page.evaluate(OVERFLOW) <= 0
    box = found.page.locator(".plot svg").first.bounding_box()
    assert box is not None
    found.page.touchscreen.tap(box["x"] + 0.6 * box["width"], box["y"] + 0.3 * box["height"])
    found.page.locator("tbody tr").nth(2).wait_for()  # a tap adds a sensor
    found.settle()
    # A finger moves the first sensor, and the page does not scroll.
    found.page.evaluate("scrollTo(0, 0)")
    box = found.page.locator(".sensor .dot").first.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    touch = found.page.context.new_cdp_session(found.page)
    for kind, by in (("touchStart", 0), ("touchMove", 20), ("touchMove", 45), ("touchEnd", 0)):
        points = [] if kind == "touchEnd" else [{"x": x + by, "y": y + by}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    found.settle()
    assert found.page.evaluate("scrollY") == 0
    sensors = found.sensors()
    assert len(sensors["w_0"]) == 3
    assert sensors["w_0"][0][0] > SENSORS["navier_stokes"]["w_0"][0][0] + 0.05
    assert max(found.differences("w", sensors)) < EQUAL


@pytest.mark.browser
def test_where_the_next_sensor_helps_most(show):
    # Of a linear model the share can be had by putting a sensor there, whatever it reads.
    found = show("cloud")
    sensors: Sensors = {"a": [[0.2, 0.3, 0.4, 0.02]], "p": [[0.6, 0.4, 0.3, 0.02]]}
    found.open(sensors)
    remainder = found.model.remainder
    assert remainder is not None
    left = (remainder[1].norm(dim=1) * found.model.outputs[0].scale).double().square().numpy()

    def mean_variance(sensors: Sensors) -> float:
        variance = found.asked(sensors).std() ** 2 - left
        return float(np.average(variance, weights=found.model.outputs[0].domain.quadrature()))

    before = mean_variance(sensors)
    for number, (name, noise) in enumerate((("a", 0.02), ("p", 0.0))):
        found.page.check(f"input[name=gain-field][value='{number}']")
        found.page.check("#gain")
        found.settle()
        rows = [row for row in found.saved("#csv-result") if row["field"] == name]
        best = max(rows, key=lambda row: float(row["next_sensor"]))
        for row in (rows[500], best):
            more = [float(row["x"]), float(row["y"]), 0.1, noise]
            share = 1 - mean_variance({**sensors, name: [*sensors[name], more]}) / before
            assert float(row["next_sensor"]) == pytest.approx(share, abs=1e-4)
    found.page.click("#add-best")
    found.settle()
    assert len(found.sensors()["p"]) == 2


def test_the_command_writes_a_page_without_secrets_or_holes(tmp_path):
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["explore", "diffusion1d", "-o", str(out)])
    assert done.exit_code == 0, done.output
    text = out.read_text(encoding="utf-8")
    assert len(text) < 2e6
    assert "default-src 'none'" in text and "unsafe" not in text.partition("</head>")[0]
    assert text.count("<script") == 2
    done = CliRunner().invoke(app, ["explore", "diffusion1d", "-o", "page.txt"])
    assert done.exit_code == 1 and "page.txt: pages are written as .html" in done.output


def test_the_program_was_built_from_its_sources():
    sources = [*sorted((ROOT / "explore").glob("src/*")), ROOT / "explore/package-lock.json"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    built = (ROOT / "src/uqsonet/show/web/explore.js").read_text(encoding="utf-8")
    assert built.startswith(f"// {digest}\n"), "run `make explore`"


def test_what_cannot_be_explored_is_said():
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 12)
    k = np.sign(rng.standard_normal((60, 1))) * (1 + x) + 0.1 * rng.standard_normal((60, 12))
    runs = uqsonet.Runs({"k": (k, x[:, None])}, {"u": (np.cumsum(k, 1), x[:, None])})
    other = uqsonet.fit(runs, sensors=[3], law="mixture", bar=False)
    assert other.bases is not None and other.linear is not None
    cokriging = Cokriging.on(other.bases, other.linear)
    grid = Grid((0.0, 0.0), (1.0, 1.0), (8, 8))
    fields = OperatorFields("maps", Field("k", grid), Field("u", grid))
    network = KarhunenLoeveFieldNetwork(input_modes=4, output_modes=4, branch=[4])
    branch = KarhunenLoeveFieldModel(fields, network, 0.0).eval()
    for model, message in (
        (other, "law 'mixture' cannot be explored"),
        (other.with_operator(cokriging), "only Karhunen-Loeve models"),
        (other.with_operator(branch), "architecture 'karhunen_loeve_field' cannot"),
    ):
        with pytest.raises(ConfigError, match=message):
            page(model, "other")


def test_a_page_that_is_too_large_is_refused(tmp_path, monkeypatch):
    model = model_of("two inputs")
    size = write_page(model, tmp_path / "fits.html", "two")
    monkeypatch.setattr("uqsonet.show.explore.MAX_BYTES", size - 1)
    with pytest.raises(ConfigError, match=rf"two would have {size / 1e6:.1f} MB.*k \(\d+ points"):
        write_page(model, tmp_path / "large.html", "two")
    assert not (tmp_path / "large.html").exists()
