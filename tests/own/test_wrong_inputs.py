"""What people's files, frames and arrays do wrong, and the message that each mistake gets."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch

import uqsonet
from uqsonet import Emulator, FieldPosterior
from uqsonet.errors import UQSONetError

LINE = np.linspace(0, 1, 16)
NAN, INF = float("nan"), float("inf")
of = uqsonet.FieldRuns.of
fit = uqsonet.fit


def positive(size: int = 60) -> np.ndarray:
    """Return positive functions (size, 16)."""
    rng = np.random.default_rng(0)
    xi, modes = rng.standard_normal((size, 4)), rng.standard_normal((4, 16))
    return np.exp(0.3 * xi @ modes)


K = positive()
U = np.cumsum(K, axis=1)


@dataclass
class World:
    """What a case may need: models, an answer, a folder."""

    folder: Path
    model: Emulator
    two: Emulator
    bare: Emulator

    def csv(self, text: str | bytes, two: bool = False, **named: object) -> FieldPosterior:
        path = self.folder / "sensors.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return (self.two if two else self.model).condition(path, **named)

    def frame(self, **columns: object) -> object:
        return self.model.condition(pd.DataFrame(columns))

    def at(self, locations: object, values: object, **named: object) -> FieldPosterior:
        return self.model.condition(locations, values, **named)

    @property
    def answer(self) -> FieldPosterior:
        return self.at([0.2, 0.5], [1.0, 1.0])

    def file(self, damage: Callable[[bytes], bytes]) -> object:
        path = self.folder / "model.safetensors"
        self.model.save(path)
        path.write_bytes(damage(path.read_bytes()))
        return uqsonet.load(path)


def holes(share: float) -> np.ndarray:
    """Return inputs whose runs, but for the first, lack the points below a share of the line."""
    found = np.where(share > LINE, np.nan, K)
    found[0] = K[0]
    return found


def none_complete() -> np.ndarray:
    """Return inputs each of whose runs lacks one point, not always the same."""
    found = K.copy()
    found[np.arange(len(K)), np.arange(len(K)) % K.shape[1]] = np.nan
    return found


def some(values: np.ndarray, value: float) -> np.ndarray:
    """Return values with one of them replaced."""
    found = values.copy()
    found[3, 5] = value
    return found


def runs(k: object, u: object = U) -> uqsonet.Runs:
    return uqsonet.Runs({"k": k}, {"u": u})


def cloud(*extra: list[float]) -> np.ndarray:
    return np.concatenate([np.random.default_rng(1).random((16 - len(extra), 2)), extra])


ONE = ([0.2], [1.0])
FOREIGN = safetensors.torch.save({"weight": torch.ones(2)})
CASES: list[tuple[str, Callable[[World], object], str]] = [
    # Tables of sensors.
    ("empty CSV", lambda w: w.csv(""), r"\.csv: empty; a header such as x,y,value is needed"),
    ("header only", lambda w: w.csv("x,value\n"), r"\.csv: a header and no rows"),
    ("no header", lambda w: w.csv("0.1,1\n0.2,1\n"), "no header; the first line must name columns"),
    ("no column of values", lambda w: w.csv("x\n0.1\n"), "no column 'value'; there are x"),
    ("misspelt column", lambda w: w.csv("x,vaule\n0.1,1\n"), "'vaule' is unknown.*mean 'value'"),
    ("no place", lambda w: w.csv("value\n1\n"), "no column 'x'; locations need x, there are value"),
    ("too many axes", lambda w: w.csv("x,y,value\n0,0,1\n"),
     "'y', but the domain has 1 coordinate"),
    ("a column twice", lambda w: w.csv("x,x,value\n0,0,1\n"), "column 'x' appears twice"),
    ("ragged rows", lambda w: w.csv("x,value\n0,1\n0.2\n"), "row 2 has 1 cells, the header 2"),
    ("decimal comma", lambda w: w.csv("x;value\n0,1;1\n"), "row 1: '0,1' .*decimals need a point"),
    ("a word", lambda w: w.csv("x,value\n0.1,one\n"), "'value', row 1: 'one' is no number"),
    ("an empty cell", lambda w: w.csv("x,value\n0.1,\n"), "'value', row 1: '' is no number"),
    ("NaN in a CSV", lambda w: w.csv("x,value\n0.1,nan\n"), "row 1: 'nan' is not finite"),
    ("no text", lambda w: w.csv(b"\xff\xfe\x00\x01"), r"cannot be read as CSV \('utf-8'"),
    ("no such file", lambda w: w.model.condition("nowhere.csv"), "nowhere.csv: no such file"),
    ("weights in a table", lambda w: w.csv("x,value,sensor,weight\n0,1,a,1\n"),
     "column 'sensor'; sensors with weights are uqsonet.WeightedPoints"),
    ("noise twice", lambda w: w.csv("x,value,noise_std\n0,1,0\n", noise_std=1), "is given too"),
    ("unknown field", lambda w: w.csv("x,value,field\n0,1,forse\n", True), "'forse'.*mean 'force'"),
    ("which field", lambda w: w.csv("x,value\n0,1\n", True), "'field' must say which of k, force"),
    ("one set far larger than others", lambda w: w.csv(
        "x,value,set\n" + "".join(f"0,1,{max(0, k - 5000)}\n" for k in range(10_000))),
     "at most 20000000: ask about sets of other sizes one by one"),
    ("empty frame", lambda w: w.frame(x=[], value=[]), "the DataFrame: no rows"),
    ("columns of two lengths", lambda w: w.model.condition({"x": [0, 1], "value": [1]}),
     "column 'value' has 1 rows, others 2"),
    # Arrays of sensors.
    ("outside", lambda w: w.at([1.5], [1.0]), r"lies outside the domain \[0.0\] to \[1.0\]"),
    ("NaN value", lambda w: w.at([0.2], [NAN]), r"must be finite \(found NaN or inf\)"),
    ("not positive under log", lambda w: w.at([0.2], [-1.0]), "of k must be positive, found -1"),
    ("disagreeing pair", lambda w: w.at([0.2, 0.2], [1.0, 2.0]), "0 and 1 of k stand at the same"),
    ("negative noise", lambda w: w.at(*ONE, noise_std=-0.1), "not negative, found -0.1"),
    ("shape of noise", lambda w: w.at(*ONE, noise_std=[0.1, 0.2]),
     r"each sensor, \(1, 1\); found \(2"),
    ("noise that no float holds", lambda w: w.at(*ONE, noise_std=10**400),
     "noise_std must be a numeric array .int too large"),
    ("readings far off", lambda _: uqsonet.load("poisson2d").condition(
        u=([[0.5, 0.5]], [1e200])).mean(),
     "the answer is not finite"),
    ("complex values", lambda w: w.at([0.2], [1j]), "values must be real numbers, found complex"),
    ("words as places", lambda w: w.at(["a"], [1.0]), "locations must be a numeric array"),
    ("a crowd of sensors", lambda w: w.at(np.zeros(20_001), np.ones(20_001)),
     "a set has 20001 sensors, at most 20000"),
    ("coordinates", lambda w: w.at([[0.2, 0.3]], [1.0]), r"have 2 coordinates, k has 1 \(x\)"),
    ("lengths", lambda w: w.at([0.2, 0.3], [1.0]), "shapes do not fit"),
    ("no values", lambda w: w.model.condition([0.2]), "found float: are the values missing?"),
    ("no places", lambda w: w.model.condition(values=[1.0]), "values without locations"),
    ("mask of numbers", lambda w: w.at(*ONE, mask=[1]), "mask must be boolean"),
    ("ragged mask", lambda w: w.at(*ONE, mask=[[True], [True, False]]), "mask must be boolean"),
    ("mask of a table", lambda w: w.csv("x,value\n0,1\n", mask=[True]), "mask goes with arrays"),
    ("gradients", lambda w: w.at([0.2], torch.ones(1, requires_grad=True)), r"values.detach\(\)"),
    ("unknown input", lambda w: w.two.condition(forse=ONE), "'forse' is unknown.*mean 'force'"),
    ("unnamed input", lambda w: w.two.condition(*ONE), "several fields: name the one"),
    ("name and table", lambda w: w.model.condition(*ONE, k=ONE), "by field name or as one table"),
    ("different sets", lambda w: w.two.condition(k=ONE, force=([[[0.2]]] * 2, [[1.0]] * 2)),
     "same number of sets, found 1, 2"),
    ("a batch in a list", lambda w: w.model.condition([([[[0.2]]] * 2, [[1.0]] * 2)]),
     "single sets"),
    # Questions.
    ("level 0", lambda w: w.answer.band(0), "level must be a number between 0 and 1, found 0"),
    ("level 90", lambda w: w.answer.band(90), "level must be a number between 0 and 1, found 90"),
    ("level too high", lambda w: w.answer.band(0.999), "needs 999 calibration runs, .* has "),
    ("unknown kind", lambda w: w.answer.band(0.5, kind="magic"), "there are conformal and plain"),
    ("uncalibrated", lambda w: w.bare.condition(*ONE).band(kind="conformal"),
     "no calibration runs"),
    ("plain and whole", lambda w: w.answer.band(0.5, None, "plain", whole=True), "leave out kind"),
    ("infinite threshold", lambda w: w.answer.exceedance(np.inf), "must be finite numbers"),
    ("samples beyond memory", lambda w: w.answer.sample(2**31 - 1), "this machine has .* fewer"),
    ("covariance beyond memory",
     lambda w: w.answer.covariance(np.linspace(0, 1, 10**6)[:, None]), "take 8000 GB"),
    ("runs that there are not", lambda w: runs(K)[[999]], "runs: index 999 is out of bounds"),
    ("no path", lambda w: w.model.save(None), "a path is needed, found NoneType"),
    ("a name with a NUL", lambda w: w.model.save("a\0b"), "no path"),
    ("no samples", lambda w: w.answer.sample(0), "size must be a whole number from 1 .*found 0"),
    ("huge seed", lambda w: w.answer.sample(2, rng=2**64), r"seed \(rng\) must be a whole"),
    ("query outside", lambda w: w.answer.mean([2.0]), r"point 0 at \[2.0\] lies outside"),
    ("query in a plane", lambda w: w.answer.mean([[0.1, 0.2]]), r"shape \(M, 1\), found \(1, 2\)"),
    ("query NaN", lambda w: w.answer.std([NAN]), r"points must be finite \(found NaN or inf\)"),
    ("query frame", lambda w: w.answer.mean(pd.DataFrame({"y": [0.1]})),
     "no column 'x'; locations need x, there are y"),
    ("query frame of texts", lambda w: w.answer.mean(pd.DataFrame({"x": [0.1, "a"]})),
     "points, column 'x', row 2: 'a' is no number"),
    ("a batch plotted", lambda w: w.at([[[0.2]]] * 2, [[1.0]] * 2).plot(),
     "shows one set of sensors"),
    ("picture of a kind", lambda w: w.answer.plot(w.folder / "a.xyz"), "pictures end in .png"),
    ("picture nowhere", lambda w: w.answer.plot(Path(__file__) / "a.png"), "cannot be written"),
    ("which output", lambda w: w.two.condition(k=ONE).mean(), r"one of 'u', 'v'"),
    ("unknown output", lambda w: w.two.condition(k=ONE)["w"], "'w' is unknown; there are .*u, v"),
    # Runs.
    ("transposed", lambda _: of(K.T, (LINE,)), r"expected \(runs, 16\) \(is it transposed\?\)"),
    ("transposed cloud", lambda _: of(K, np.random.default_rng(0).random((60, 2))),
     r"do not fit 60 points: expected \(runs, 60\) \(is it transposed"),
    ("one function", lambda _: runs(K[0], U), "numbers of runs: k has 16, u has 60"),
    ("no runs", lambda _: of(K[:0]), r"no runs or no points, found shape \(0, 16\)"),
    ("one run", lambda _: fit(runs(K[:1], U[:1])), "runs: 1 runs; at least 8 are needed"),
    ("different numbers", lambda _: runs(K, U[:50]), "numbers of runs: k has 60, u has 50"),
    ("words as runs", lambda _: of([["a", "b"]]), "values must be real numbers, found <U1"),
    ("ragged runs", lambda _: of([[1, 2], [3]]), "values must be a numeric array"),
    ("NaN in runs", lambda _: of(some(K, NAN)),
     "1 values of 1 of 60 runs are NaN, the first in run 3"),
    ("infinite runs", lambda _: of(some(K, INF)), "run 3 is infinite at point 5"),
    ("too many missing", lambda _: of(holes(0.6), missing="fill"), "cannot fill"),
    ("all runs incomplete", lambda _: of(none_complete(), missing="drop"),
     "none of 60 runs is complete"),
    ("unknown remedy", lambda _: of(K, missing="zero"), "there are error, drop, fill, model"),
    ("k <= 0 under log", lambda _: of(K - 1, transform="log"),
     "must be positive under log, found -"),
    ("unknown transform", lambda _: of(K, transform="sqrt"), "are identity, log and asinh"),
    ("constant", lambda _: of(np.ones((30, 5))), "constant over all runs and points, always 1"),
    ("always the same input", lambda _: fit(runs(np.tile(LINE, (60, 1)))), "k: the same in all"),
    ("a law of one run", lambda _: runs(K)[:1].describe(), "k: the same in all runs"),
    ("always the same output", lambda _: runs(K, 0 * U + LINE).describe(), "u: the same in all"),
    ("a grid given twice", lambda _: of(K, (np.tile(LINE[:8], 2),)),
     "axis 0 must rise or fall from point to point, found 0 after 0.466667 at point 8"),
    ("axis with NaN", lambda _: of(K, ([*LINE[:-1], NAN],)),
     "axis 0 has values that are not finite"),
    ("repeated points", lambda _: of(K, cloud([0.5, 0.5], [0.5, 0.5])), "14 and 15 are the same"),
    ("points on one line", lambda _: of(K, np.c_[LINE, 2 * LINE]), "all 16 points lie on one line"),
    ("points in 4D", lambda _: of(K, np.ones((16, 4))), r"d = 1, 2 or 3, found \(16, 4\)"),
    ("periodic, not uniform", lambda _: of(K, (LINE**2,), periodic=True), "must be uniform"),
    ("a name twice", lambda _: uqsonet.Runs({"k": K}, {"k": U}), "k: an input and another output"),
    ("no outputs", lambda _: uqsonet.Runs({"k": K}, {}), "one input field and one output field"),
    ("no names", lambda _: uqsonet.Runs(K, U), "must be mappings of field names to arrays"),
    # Fit, validate, load.
    ("too many sensors", lambda _: fit(runs(K), sensors=17), "must be from 1 to 16, found 17"),
    ("sensors as words", lambda _: fit(runs(K), sensors="five"), "counts or places expected"),
    ("sensors, none", lambda _: fit(runs(K), sensors=[]),
     r"shape \(m, 1\), expected; found \(0,"),
    ("sensors outside", lambda _: fit(runs(K), sensors=[[7.0]]),
     r"sensor 0 at \[7.0\] lies out"),
    ("long name", lambda _: uqsonet.load("a" * 5000), "a: cannot be read: File name too long"),
    ("long name of runs", lambda _: uqsonet.open_runs(["a" * 5000], "k", "u"), "name too long"),
    ("no path of runs", lambda _: uqsonet.open_runs(5, "k", "u"), "a path is needed, found int"),
    ("true sensors", lambda _: fit(runs(K), sensors=True), r"sensors: counts.*\(found True\)"),
    ("seed of a fit", lambda _: fit(runs(K), rng=-1), r"seed \(rng\) must be.*found -1"),
    ("arrays for runs", lambda _: fit((K, U)), "must be uqsonet.Runs, found tuple"),
    ("scored on other names", lambda w: w.model.validate(uqsonet.Runs({"kk": K}, {"u": U})),
     "no input field 'k'; there are kk"),
    ("scored on nothing", lambda w: w.model.validate(runs(K)[60:]),
     "at least one; found Runs.0 runs"),
    ("scored elsewhere", lambda w: w.model.validate(runs((K, (LINE + 5,)))), "lies in the model's"),
    ("changed model", lambda w: w.file(lambda b: b[:-9] + b"x" + b[-8:]),
     "do not match their SHA-256"),
    ("foreign model", lambda w: w.file(lambda _: FOREIGN), "not written by uqsonet"),
    ("missing model", lambda _: uqsonet.load("navier_stoks"),
     "no such file.*did you mean 'navier_stokes'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    log = of(K, transform="log")
    model = fit(runs(log), sensors=[3], bar=False)
    several = uqsonet.Runs({"k": log, "force": K[:, ::-1]}, {"u": U, "v": U**2})
    two = fit(several, sensors=[3], bar=False)
    bare = replace(model, calibration=())
    return World(tmp_path_factory.mktemp("wrong"), model, two, bare)


@pytest.mark.parametrize(
    ("call", "message"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_mistake_gets_a_message(
    world: World, call: Callable[[World], object], message: str
) -> None:
    with warnings.catch_warnings(), pytest.raises(UQSONetError, match=message) as caught:
        warnings.simplefilter("ignore", uqsonet.ObservationWarning)
        call(world)
    assert len(str(caught.value)) < 400


def test_what_looks_wrong_and_is_not(world: World) -> None:
    """Comments, blank lines, quotes, semicolons, Windows ends of lines, a byte order mark."""
    texts = (
        "x,value\n0.25,1.5\n",
        '# my sensors\n\n"x","value"\n0.25,1.5\n',
        "\ufeffvalue;x\r\n1.5;0.25\r\n\r\n",
        "x\tvalue\n 0.25\t1.5 \n# the end\n",
    )
    plain, *others = (world.csv(text).mean() for text in texts)
    for other in others:
        np.testing.assert_array_equal(other, plain)
