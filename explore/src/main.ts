// The page: sensors, the answer to them, and what is shown of it.
import { element, number, plain } from "./dom";
import { Answer, Model, SAMPLES, type Gain, type Sensor, type StoredModel } from "./model";
import { Reference, type Exact } from "./reference";
import { Panel, Z, type Placed, type View } from "./panel";

/** Pairs of exact solutions behind a reference, while sensors move and when they rest. */
const PAIRS = { moving: 24, resting: 2048 };
/** Milliseconds that drawing samples may take of a frame, by the largest number of dimensions. */
const BUDGET = { 1: 5, 2: 20 };
const LEAST_DRAWS = 32;
/** Effective draws below which an answer is called rough. */
const FEW_DRAWS = 50;

const model = new Model(JSON.parse(document.getElementById("model")!.textContent!) as StoredModel);
const { fields, stored } = model;
const target = fields.findIndex((field) => !field.stored.input);
const dim = Math.max(...fields.map((field) => field.dim)) as 1 | 2;
const names = (input: boolean) => fields.filter((f) => f.stored.input === input).map((f) => f.stored.name);

const inputField = fields.find((field) => field.stored.input)!;
const reference = stored.reference && new Reference(stored.reference, inputField.stored, stored.seed);

let sensors: Placed[] = [];
let next = 1;
let answer: Answer;
let gainOf = fields.findIndex((field) => field.stored.input);
let waiting = 0;

const summary = element("p", { id: "summary", role: "status", "aria-live": "polite" });
const note = element("p", { id: "draws", class: "readout" });
const rows = element("tbody", {});
const exactBox = element("input", { type: "checkbox", id: "exact", checked: "" });
const gainBox = element("input", { type: "checkbox", id: "gain" });
// Long names wrap beside a button; those of a list would be cut.
const gainFields = fields.map((_, k) => element("input", { type: "radio", name: "gain-field", value: k }));
const addBest = element("button", { id: "add-best", type: "button" }, "Add it");
const gainText = element("span", { id: "gain-text" });

const first = new Answer(model, []);
first.extend(256);
const owner = {
  add(field: number, x: number[], value: number | null) {
    const at = value ?? fields[field].inverse(meanAt(field, x));
    const noise = fields[field].stored.noise;
    sensors.push({ id: next, field, x, value: Number(at.toPrecision(4)), noise });
    changed(true);
    focus(field, next++);
  },
  change(id: number, change: Partial<Sensor>) {
    const one = sensors.find((sensor) => sensor.id === id);
    if (!one) return;
    Object.assign(one, change);
    changed(false);
  },
  remove(id: number) {
    const at = sensors.findIndex((sensor) => sensor.id === id);
    if (at < 0) return;
    sensors.splice(at, 1);
    changed(true);
    const after = sensors[Math.min(at, sensors.length - 1)];
    if (after) focus(after.field, after.id);
  },
  looked(field: number, view: View) {
    if (view === "next sensor") {
      gainBox.checked = true;
      gainOf = field;
      gainFields[field].checked = true;
    }
    changed(false);
  },
  edit(id: number) {
    rows.querySelector<HTMLInputElement>(`tr[data-id="${id}"] input[name="value"]`)?.focus();
  },
};
// A map shows one thing at a time, so fields of two dimensions have two. Those of the means stand
// together: a moved sensor of one is seen in the others.
const priors = fields.map((_, k) => first.field(k));
const panels = (["mean", "std"] as const).flatMap((view) => fields.flatMap((field, k) =>
  view === "mean" || field.dim === 2 ? [new Panel(field, k, priors[k], owner, view, view === "mean")] : []));

function focus(field: number, id: number): void {
  panels.find((panel) => panel.fieldNumber === field)!.focus(id);
}

/** Mean of the (transformed) field at a place, from the shown point that is nearest. */
function meanAt(field: number, x: number[]): number {
  const { points, lower, upper } = fields[field], { mean } = answer.field(field, 0);
  const distance = (p: number[]) =>
    p.reduce((sum, v, axis) => sum + ((v - x[axis]) / (upper[axis] - lower[axis])) ** 2, 0);
  let best = 0;
  points.forEach((p, i) => {
    if (distance(p) < distance(points[best])) best = i;
  });
  return mean[best];
}

// --- From sensors to pictures -------------------------------------------------------------------

/** Sensors were moved, or (`other`) added or removed. */
function changed(other: boolean): void {
  document.body.dataset.state = "busy";
  if (other) {
    listSensors();
    for (const panel of panels) panel.put(sensors);
  } else updateList();
  clearTimeout(waiting);
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(draw);
}

let frame = 0;
/** Draws that fit into a frame, with sensors of inputs alone and of outputs. */
const preview = { straight: LEAST_DRAWS, sampled: LEAST_DRAWS };

/** Answer with the first draws; the others follow when nothing moves. */
function draw(): void {
  answer = new Answer(model, sensors);
  const kind = answer.sampledSensors ? "sampled" : "straight", size = preview[kind];
  const start = performance.now();
  answer.extend(size);
  const spent = performance.now() - start;
  if (spent > BUDGET[dim] && size > LEAST_DRAWS) preview[kind] /= 2;
  else if (spent < BUDGET[dim] / 3 && size < answer.total) preview[kind] *= 2;
  show(null, PAIRS.moving);
  performance.mark("drawn");
  waiting = setTimeout(refine, 150);
}

function refine(): void {
  if (answer.size < answer.total) {
    answer.extend(answer.size + preview[answer.sampledSensors ? "sampled" : "straight"]);
    waiting = setTimeout(refine, 0);
    return;
  }
  show(gainBox.checked ? answer.gain(gainOf, target) : null, PAIRS.resting);
  summary.textContent = described();
  keepState();
  document.body.dataset.state = "ready";
}

function show(gain: Gain | null, pairs: number): void {
  const found = fields.map((field, k) =>
    answer.field(k, field.dim === 1 || panels.some((p) => p.view === "sample") ? SAMPLES : 0));
  const ofInputs = sensors.every((one) => fields[one.field].stored.input);
  exactly = reference && exactBox.checked && ofInputs ? reference.answer(sensors, pairs) : null;
  for (const panel of panels) {
    const k = panel.fieldNumber;
    panel.show(found[k], sensors, k === gainOf ? gain : null, k === target ? exactly : null);
  }
  const { effective } = answer;
  note.textContent = `${answer.size} of ${answer.total} draws`
    + (effective === null ? "" : `, worth ${effective.toFixed(0)}`);
  note.hidden = model.network === null;
  addBest.disabled = gain === null;
  gainText.textContent = gain ? gainWords(gain) : "";
  best = gain;
}

let best: Gain | null = null;
let exactly: Exact | null = null;

function gainWords(gain: Gain): string {
  const place = fields[gainOf].neat(fields[gainOf].points[gain.best]).map(plain).join(", ");
  const share = (100 * gain.share[gain.best]).toPrecision(2);
  return `A sensor of ${fields[gainOf].stored.name} at (${place}) is expected to take away `
    + `${share} % of the mean variance of ${fields[target].stored.name}.`;
}

/** What a reader who does not see the pictures is told. */
function described(): string {
  const count = (k: number) => sensors.filter((one) => one.field === k).length;
  const given = fields.map((f, k) => [count(k), f.stored.name] as const).filter(([n]) => n)
    .map(([n, name]) => `${n} of ${name}`).join(" and ") || "none";
  const parts = fields.map((field, k) => {
    const { mean, std } = answer.field(k, 0), { name } = field.stored;
    let widest = 0;
    std.forEach((value, i) => {
      if (field.inside[i] && value > std[widest]) widest = i;
    });
    const values = Array.from(mean).filter((_, i) => field.inside[i]).map((v) => field.inverse(v));
    const place = field.neat(field.points[widest]).map(plain).join(", ");
    const ends = [-Z, Z].map((z) => number(field.inverse(mean[widest] + z * std[widest]), 3));
    return `${name}: ${field.stored.log ? "median" : "mean"} from ${number(Math.min(...values), 3)} `
      + `to ${number(Math.max(...values), 3)}, least sure at (${place}), there 95 % in ${ends.join(" to ")}.`;
  });
  const outside = sensors.filter((one) => {
    const [low, high] = fields[one.field].stored.range;
    const margin = low === null || high === null ? Infinity : 0.1 * (high - low);
    return one.value < (low ?? 0) - margin || one.value > (high ?? 0) + margin;
  });
  if (outside.length) parts.push(`Of the sensors ${outside.length} read what training never saw.`);
  if (answer.improbable)
    parts.push("The sensors are improbable under the model (one in ten thousand): the band need not hold.");
  const { effective } = answer;
  if (effective !== null && effective < FEW_DRAWS)
    parts.push(`Only some ${effective.toFixed(0)} draws carry this answer: it is rough, and its band too narrow.`);
  return `Sensors: ${given}. ${parts.join(" ")}`;
}

// --- The table of sensors -----------------------------------------------------------------------

const COLUMNS = [...(dim === 2 ? ["x", "y"] : ["x"]), "value", "noise"];

/** What a column is called: a coordinate by the name that its field has for it, or all fields have. */
function title(column: string, shown = fields): string {
  const axis = "xy".indexOf(column);
  const names = new Set(shown.filter((field) => field.dim > axis).map((field) => field.stored.axes[axis]));
  return axis >= 0 && names.size === 1 ? [...names][0] : column;
}

function entry(one: Placed, column: string): number | undefined {
  if (column === "value" || column === "noise") return one[column];
  return one.x["xy".indexOf(column)];
}

function listSensors(): void {
  rows.replaceChildren(...sensors.map((one) => {
    const { name } = fields[one.field].stored;
    const row = element("tr", { "data-id": one.id }, element("th", { scope: "row" }, name));
    for (const column of COLUMNS) {
      const cell = element("td", { "data-name": title(column, [fields[one.field]]) });
      row.append(cell);
      if (entry(one, column) === undefined) continue;
      const input = element("input", {
        type: "number", step: "any", name: column, "aria-label": `${title(column, [fields[one.field]])} of a sensor of ${name}`,
      });
      input.addEventListener("change", () => typed(one, column, input));
      cell.append(input);
    }
    const remove = element("button", { type: "button", "aria-label": `Remove this sensor of ${name}` }, "×");
    remove.addEventListener("click", () => owner.remove(one.id));
    row.append(element("td", {}, remove, element("small", { class: "refused", role: "alert" })));
    return row;
  }));
  updateList();
}

function updateList(): void {
  sensors.forEach((one, k) => {
    rows.children[k].querySelector(".refused")!.textContent = "";
    rows.children[k].querySelectorAll("input").forEach((input) => {
      input.value = plain(entry(one, input.name)!);
      input.removeAttribute("aria-invalid");
    });
  });
}

function typed(one: Placed, column: string, input: HTMLInputElement): void {
  const field = fields[one.field], value = input.valueAsNumber, axis = "xy".indexOf(column);
  const least = axis >= 0 ? field.lower[axis] : column === "noise" ? 0 : -Infinity;
  const most = axis >= 0 ? field.upper[axis] : Infinity, positive = column === "value" && field.stored.log;
  const allowed = Number.isFinite(value) && value >= least && value <= most && !(positive && value <= 0);
  input.setAttribute("aria-invalid", String(!allowed));
  const wanted = axis >= 0 ? `from ${number(least)} to ${number(most)}`
    : positive ? "above 0" : column === "noise" ? "0 or more" : "a number";
  input.closest("tr")!.querySelector(".refused")!.textContent = allowed ? "" : ` ${title(column, [field])}: ${wanted}`;
  if (!allowed) return;
  if (axis < 0) owner.change(one.id, { [column]: value });
  else owner.change(one.id, { x: one.x.map((old, i) => (i === axis ? value : old)) });
}

// --- Links and files ----------------------------------------------------------------------------

function keepState(): void {
  const text = fields.map((field, k) => {
    const own = sensors.filter((one) => one.field === k);
    const parts = own.map((one) => [...one.x, one.value, one.noise].join(","));
    return `${encodeURIComponent(field.stored.name)}=${parts.join(";")}`;
  });
  history.replaceState(null, "", `#${text.join("&")}`);
}

/** Sensors that a link names; null if it names none, or is damaged. */
function linked(): Placed[] | null {
  if (location.hash.length < 2) return null;
  const found: Placed[] = [];
  for (const part of location.hash.slice(1).split("&")) {
    const [name, list = ""] = part.split("=");
    const k = fields.findIndex((field) => encodeURIComponent(field.stored.name) === name);
    if (k < 0) return null;
    const field = fields[k];
    for (const text of list.split(";").filter(Boolean)) {
      const values = text.split(",").map(Number), x = values.slice(0, field.dim);
      const [value, noise] = values.slice(field.dim);
      const fits = values.length === field.dim + 2 && values.every(Number.isFinite) && noise >= 0
        && x.every((v, axis) => v >= field.lower[axis] && v <= field.upper[axis])
        && (value > 0 || !field.stored.log);
      if (!fits) return null;
      found.push({ id: next++, field: k, x, value, noise });
    }
  }
  return found;
}

/** Three sensors of the first input, which read the first draw. */
function example(): Placed[] {
  const k = fields.findIndex((field) => field.stored.input), field = fields[k];
  const drawn = first.field(k).samples[0], n = field.points.length, side = Math.round(Math.sqrt(n));
  const at = field.dim === 1
    ? [0.18, 0.5, 0.82].map((share) => Math.round(share * (n - 1)))
    : [[0.25, 0.3], [0.7, 0.35], [0.45, 0.75]].map(([a, b]) => Math.round(a * side) * side + Math.round(b * side));
  return at.filter((i) => field.inside[i]).map((i) => ({
    id: next++, field: k, x: field.neat(field.points[i]),
    value: Number(field.inverse(drawn[i]).toPrecision(4)), noise: field.stored.noise,
  }));
}

function save(name: string, lines: (string | number)[][]): void {
  const quoted = (cell: string | number) => (/[",\n]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : cell);
  const text = lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const axes = dim === 2 ? ["x", "y"] : ["x"];
const padded = (x: number[]) => axes.map((_, axis) => x[axis] ?? "");

function saveSensors(): void {
  const lines = sensors.map((one) =>
    [...padded(one.x), one.value, fields[one.field].stored.name, one.noise]);
  save("sensors.csv", [[...axes, "value", "field", "noise_std"], ...lines]);
}

function saveResult(): void {
  const lines = fields.flatMap((field, k) => {
    const { mean, std } = answer.field(k, 0);
    return field.points.flatMap((x, i) => {
      if (!field.inside[i]) return [];
      const ends = [-Z, Z].map((z) => field.inverse(mean[i] + z * std[i]));
      // Under a logarithm: moments of the lognormal law.
      const centre = field.stored.log ? Math.exp(mean[i] + std[i] ** 2 / 2) : mean[i];
      const width = field.stored.log ? centre * Math.sqrt(Math.expm1(std[i] ** 2)) : std[i];
      const share = best && k === gainOf ? [best.share[i]] : [];
      const cells = [centre, width, ...ends, ...share].map((v) => v.toPrecision(9));
      return [[field.stored.name, ...padded(x.map((v) => Number(v.toPrecision(12)))), ...cells]];
    });
  });
  // The exact answer is of its own grid.
  exactly?.points.forEach((x, i) => {
    const [m, s] = [exactly!.mean[i], exactly!.std[i]];
    const cells = [m, s, m - Z * s, m + Z * s].map((v) => v.toPrecision(9));
    lines.push([`${fields[target].stored.name} (exact)`, ...padded([Number(x.toPrecision(12))]), ...cells]);
  });
  save("result.csv", [["field", ...axes, "mean", "std", "lower", "upper", "next_sensor"], ...lines]);
}

async function copyLink(): Promise<void> {
  keepState();
  const done = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
  summary.textContent = done ? "The link was copied." : "The address of this page is the link.";
}

// --- The page -----------------------------------------------------------------------------------

function button(id: string, text: string, action: () => void): HTMLButtonElement {
  const found = element("button", { id, type: "button" }, text);
  found.addEventListener("click", action);
  return found;
}

const adders = fields.map((field, k) =>
  button(`add-${k}`, `Add a sensor of ${field.stored.name}`, () => {
    const middle = field.points.filter((_, i) => field.inside[i]);
    const x = middle[Math.floor(((next * 0.381966) % 1) * middle.length)];
    owner.add(k, field.neat(x), null);
  }));
gainBox.addEventListener("change", () => {
  for (const panel of panels) panel.lookAt(gainBox.checked && panel.fieldNumber === gainOf);
  changed(false);
});
exactBox.addEventListener("change", () => changed(false));
gainFields.forEach((choice, k) => choice.addEventListener("change", () => {
  gainOf = k;
  gainBox.dispatchEvent(new Event("change"));
}));
addBest.addEventListener("click", () => {
  if (best) owner.add(gainOf, fields[gainOf].neat(fields[gainOf].points[best.best]), null);
});
const exact = [
  "Computed in this page from the weights of the model; nothing is fetched or sent.",
  "Band: mean and 1.96 standard deviations; of a field under a logarithm, median and the band of its logarithm.",
  model.network
    ? `Given sensors of ${names(true).join(", ")} mean and standard deviation are those of Python: the linear part exactly, the rest from the same ${stored.draws} draws. While sensors move the first of these are taken.`
    : "Mean and standard deviation are exact, and those of Python, for sensors of all fields.",
  model.network
    ? `With sensors of ${names(false).join(", ")} the answer is sampled (1024 weighted draws, Python has 4096 that are moved, too), so it differs from Python's by the error of sampling.`
    : "",
  stored.conformal ? "Python's bands of this model are widened by its calibration runs (conformal); these are not." : "",
  "Thin lines are sample functions, without what the modes leave out.",
];

document.getElementById("page")!.replaceChildren(
  element("header", {}, element("h1", {}, stored.title),
    element("p", {}, `Drag the sensors. A click on a picture adds one; Delete removes the one that has the keyboard, `
      + `arrow keys move it, ${dim === 2 ? "+ and - change its value, " : ""}Enter goes to its row in the table.`)),
  element("div", { class: `panels d${dim}` }, ...panels.map((panel) => panel.root)),
  note,
  element("div", { class: "tools" }, ...adders,
    button("copy", "Copy link", () => void copyLink()),
    button("csv-sensors", "Sensors as CSV", saveSensors), button("csv-result", "Result as CSV", saveResult)),
  element("div", { class: "tools" },
    element("label", {}, gainBox, " Where does the next sensor help most?"),
    ...gainFields.map((choice, k) => element("label", {}, choice, ` of ${fields[k].stored.name}`)), addBest, gainText),
  ...(reference ? [element("div", { class: "tools" }, element("label", {}, exactBox,
    " Exact answer to sensors of k: the equation solved for draws of its own law (dashed)"))] : []),
  element("div", { class: "wide" }, element("table", {},
    element("caption", {}, "Sensors"),
    element("thead", {}, element("tr", {}, ...["field", ...COLUMNS.map((column) => title(column)), ""].map((name) => element("th", { scope: "col" }, name)))),
    rows)),
  element("h2", {}, "In words"), summary,
  element("details", {}, element("summary", {}, "What is exact here"),
    element("ul", {}, ...exact.filter(Boolean).map((text) => element("li", {}, text))),
    element("p", {}, `uqsonet ${stored.version}, model ${stored.name}`)),
);

answer = first;
sensors = linked() ?? example();
gainFields[gainOf].checked = true;
changed(true);
addEventListener("hashchange", () => {
  const found = linked();
  if (!found) return;
  sensors = found;
  changed(true);
});
