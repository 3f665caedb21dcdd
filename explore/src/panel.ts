// The picture of one field: a curve with its band, or a map; sensors on it can be moved.
import { scaleLinear, scaleLog, type ScaleContinuousNumeric } from "d3-scale";
import { interpolateMagma, interpolateViridis } from "d3-scale-chromatic";
import { area, line } from "d3-shape";
import { neat, type Field } from "./field";
import type { FieldAnswer, Gain, Sensor } from "./model";
import type { Exact } from "./reference";
import { element, number, plain, svg } from "./dom";

/** Half of the width of a 95 % band, in standard deviations. */
export const Z = 1.959963984540054;

export const VIEWS = ["mean", "std", "sample", "next sensor"] as const;
export type View = (typeof VIEWS)[number];
/** What some are called of a field under a logarithm. */
const LOG: Partial<Record<View, string>> = { mean: "median", std: "std of log" };

export interface Placed extends Sensor {
  id: number;
}

/** What a panel asks of the page. */
export interface Owner {
  add(field: number, x: number[], value: number | null): void;
  change(id: number, change: Partial<Sensor>): void;
  remove(id: number): void;
  edit(id: number): void;
  /** Another view was chosen. */
  looked(field: number, view: View): void;
}

type Scale = ScaleContinuousNumeric<number, number>;

/** Around a plot; on its left as much as labels need. */
const MARGIN = { right: 12, top: 10, bottom: 34, title: 14 };
const DIGIT = 7; // pixels
const TOUCH = 14;

export class Panel {
  readonly root: HTMLElement;
  private readonly plot = svg("svg", { role: "group" });
  private readonly axes = svg("g", { class: "axes", "aria-hidden": "true" });
  private readonly curves = svg("g", { class: "curves", "aria-hidden": "true" });
  private readonly inside = svg("rect", {});
  private readonly handles = svg("g", {});
  private readonly canvas = element("canvas", { "aria-hidden": "true" });
  private readonly bar = element("canvas", { class: "bar", width: 128, height: 1 });
  private readonly legend = element("div", { class: "legend" });
  private readonly readout = element("p", { class: "readout", "aria-hidden": "true" });
  private readonly choice: HTMLSelectElement | null = null;
  private readonly drawn = new Map<number, SVGGElement>();
  private readonly prior: FieldAnswer;
  /** Ends of the axis of a curve's values. */
  private readonly low: number;
  private readonly high: number;
  private readonly widest: number;
  private readonly narrow: [number, number];
  private readonly top: number;
  private x!: Scale;
  private y!: Scale;
  private answer: FieldAnswer;
  private gain: Gain | null = null;
  private exact: Exact | null = null;
  private sensors: Placed[] = [];

  constructor(
    readonly field: Field, readonly fieldNumber: number, prior: FieldAnswer,
    private readonly owner: Owner, view: View, private readonly focusable: boolean,
  ) {
    this.answer = this.prior = prior;
    [this.low, this.high] = this.ends(3);
    this.narrow = this.ends(1);
    this.widest = Math.max(...this.shown(prior.std));
    this.top = MARGIN.top + (field.dim === 1 ? 0 : MARGIN.title);
    const side = field.stored.input ? "input" : "output";
    const shown = field.dim === 1 ? `: ${field.stored.log ? "median" : "mean"}, 95 % band, samples` : "";
    const title = element("h2", {}, `${field.label} `, element("small", {}, side + shown));
    const box = element("div", { class: "plot" });
    this.root = element("section", { class: `panel d${field.dim}`, "aria-label": `${side} ${field.label}, ${view}` }, title);
    if (field.dim === 2) {
      this.canvas.width = this.canvas.height = Math.sqrt(field.points.length);
      this.choice = element("select", { "aria-label": `What the map of ${field.stored.name} shows` },
        ...VIEWS.map((name) => element("option", { value: name }, field.stored.log && LOG[name] || name)));
      this.choice.value = view;
      this.choice.addEventListener("change", () => owner.looked(fieldNumber, this.view));
      title.append(this.choice);
      box.append(this.canvas);
    }
    this.plot.setAttribute("aria-label", `${field.label}: sensors can be moved with the arrow keys`);
    if (field.dim === 1) {
      // Curves that leave the picture do not cross its labels.
      this.plot.append(svg("clipPath", { id: `inside-${fieldNumber}` }, this.inside));
      this.curves.setAttribute("clip-path", `url(#inside-${fieldNumber})`);
    }
    this.plot.append(this.axes, this.curves, this.handles);
    box.append(this.plot);
    this.root.append(box, this.legend, this.readout);
    this.plot.addEventListener("click", (event) => this.clicked(event));
    this.plot.addEventListener("pointermove", (event) => this.hover(event));
    new ResizeObserver(() => this.resized()).observe(box);
  }

  get view(): View {
    return (this.choice?.value ?? "mean") as View;
  }

  /** Turn the map of a field's standard deviation to where the next sensor helps, or back. */
  lookAt(next: boolean): void {
    if (this.choice && !this.focusable) this.choice.value = next ? "next sensor" : "std";
  }

  show(answer: FieldAnswer, sensors: Placed[], gain: Gain | null, exact: Exact | null): void {
    [this.answer, this.gain, this.exact] = [answer, gain, exact];
    this.sensors = sensors.filter((one) => one.field === this.fieldNumber);
    this.draw();
  }

  /** Draw the sensors alone, before there is an answer to them. */
  put(sensors: Placed[]): void {
    this.sensors = sensors.filter((one) => one.field === this.fieldNumber);
    if (!this.x) return;
    this.drawHandles();
  }

  /** Value of the field for one that is transformed. */
  private value(transformed: number): number {
    return this.field.inverse(transformed);
  }

  /** Those of some numbers that are where the field has values. */
  private shown(numbers: Float64Array): number[] {
    return Array.from(numbers).filter((_, i) => this.field.inside[i]);
  }

  /** The range of the mean before any sensor, and so many standard deviations on each side. */
  private ends(width: number): [number, number] {
    const { mean, std } = this.prior;
    const side = (sign: number) => this.shown(mean.map((m, i) => m + sign * width * std[i]));
    return [Math.min(...side(-1)), Math.max(...side(1))];
  }

  /** The ends of the colours of a map: of one standard deviation before any sensor, and the mean. */
  private colourEnds(): [number, number] {
    const [low, high] = this.narrow, mean = this.shown(this.answer.mean);
    return [Math.min(low, ...mean), Math.max(high, ...mean)];
  }

  private resized(): void {
    const width = this.plot.parentElement!.clientWidth, { field, top } = this;
    if (!width) return;
    if (field.dim === 2) this.y = scaleLinear([field.lower[1], field.upper[1]], [1, 0]);
    else if (field.stored.log) this.y = scaleLog([Math.exp(this.low), Math.exp(this.high)], [1, 0]);
    else this.y = scaleLinear([this.low, this.high], [1, 0]);
    const labels = this.labels();
    const left = 14 + DIGIT * Math.max(...labels.map(([, text]) => text.length));
    const ratio = field.dim === 1 ? 0 : (field.upper[1] - field.lower[1]) / (field.upper[0] - field.lower[0]);
    // Maps are of the field's own shape unless that is very wide or tall, and fit on a screen.
    const shape = Math.min(3, Math.max(0.3, ratio)), inner = (width - left - MARGIN.right) * Math.min(1, 1.2 / shape);
    const height = field.dim === 1 ? Math.min(260, 0.65 * width) : inner * shape;
    const bottom = top + height;
    this.plot.setAttribute("width", String(width));
    this.plot.setAttribute("height", String(bottom + MARGIN.bottom));
    this.x = scaleLinear([field.lower[0], field.upper[0]], [left, left + inner]);
    this.y.range([bottom, top]);
    // Values of the first and the last points are in the middle of their cells, as in the axes.
    const [cell, row] = [inner, height].map((size) => size / (2 * this.canvas.width - 2));
    Object.assign(this.canvas.style, {
      left: `${left - cell}px`, top: `${top - row}px`, width: `${inner + 2 * cell}px`, height: `${height + 2 * row}px`,
      clipPath: `inset(${row}px ${cell}px)`,
    });
    for (const [name, value] of Object.entries({ x: left, y: top, width: inner, height }))
      this.inside.setAttribute(name, String(value));
    this.drawAxes(left, left + inner, bottom, labels);
    this.draw();
  }

  /** Ticks of the upright axis, and what stands there. */
  private labels(): [number, string][] {
    const { y, field } = this;
    const label = y.tickFormat(5, field.dim === 1 && field.stored.log ? "~g" : undefined);
    return y.ticks(5).map((tick) => [tick, label(tick)]);
  }

  private drawAxes(left: number, right: number, bottom: number, labels: [number, string][]): void {
    const { x, y, field, top } = this, parts: SVGElement[] = [];
    const count = Math.max(2, Math.floor((right - left) / 90)), label = x.tickFormat(count);
    for (const tick of x.ticks(count))
      parts.push(
        svg("line", { x1: x(tick), x2: x(tick), y1: top, y2: bottom + 4 }),
        svg("text", { x: x(tick), y: bottom + 17, "text-anchor": "middle" }, label(tick)));
    for (const [tick, text] of labels)
      parts.push(
        svg("line", { x1: left - 4, x2: right, y1: y(tick), y2: y(tick) }),
        svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, text));
    parts.push(svg("text", { x: right, y: bottom + 31, "text-anchor": "end" }, field.stored.axes[0]));
    if (field.dim === 2) parts.push(svg("text", { x: 0, y: 10 }, field.stored.axes[1]));
    this.axes.replaceChildren(...parts);
  }

  private draw(): void {
    if (!this.x) return;
    if (this.field.dim === 1) this.drawCurves();
    else this.drawMap();
    this.drawHandles();
  }

  private drawCurves(): void {
    const { x, y, field: { points }, answer: { mean, std, samples } } = this;
    const at = Array.from(mean.keys()), [bottom] = y.range();
    const curve = line<number>((i) => x(points[i][0])).digits(1);
    const path = (name: string, d: string | null) => svg("path", { class: name, d: d ?? "" });
    const band = area<number>((i) => x(points[i][0]),
      (i) => y(this.value(mean[i] - Z * std[i])), (i) => y(this.value(mean[i] + Z * std[i]))).digits(1);
    const parts = [path("band", band(at))];
    for (const sample of samples) parts.push(path("sample", curve.y((i) => y(this.value(sample[i])))(at)));
    parts.push(path("mean", curve.y((i) => y(this.value(mean[i])))(at)));
    if (this.exact) {
      const { points: places, mean: m, std: s } = this.exact, all = Array.from(places.keys()).filter((i) => i % 2 === 0);
      for (const [name, z] of [["exact", 0], ["exact edge", -Z], ["exact edge", Z]] as const)
        parts.push(path(name, line<number>((i) => x(places[i]), (i) => y(m[i] + z * s[i])).digits(1)(all)));
    }
    if (this.gain) {
      const { share, best } = this.gain, most = share[best] || 1;
      const hill = area<number>((i) => x(points[i][0]), bottom, (i) => bottom - (60 * share[i]) / most);
      parts.push(path("gain", hill(at)), svg("line", {
        class: "best", x1: x(points[best][0]), x2: x(points[best][0]), y1: bottom, y2: bottom - 70,
      }));
    }
    this.curves.replaceChildren(...parts);
  }

  /** Numbers that the map shows, their range, and how they are coloured and labelled. */
  private map() {
    const { answer: { mean, std, samples }, gain, view } = this;
    const back = (v: number) => this.value(v), same = (v: number) => v;
    if (view === "std") return { values: std, low: 0, high: this.widest, colour: interpolateMagma, label: same };
    if (view === "next sensor" && gain)
      return { values: gain.share, low: 0, high: gain.share[gain.best] || 1, colour: interpolateMagma, label: same };
    const values = (view === "sample" && samples[0]) || mean, [low, high] = this.colourEnds();
    return { values, low, high, colour: interpolateViridis, label: back };
  }

  private drawMap(): void {
    const { values, low, high, colour, label } = this.map();
    const size = this.canvas.width, context = this.canvas.getContext("2d")!;
    const image = context.createImageData(size, size), table = colours(colour);
    values.forEach((value, i) => {
      const column = Math.floor(i / size), row = size - 1 - (i % size), to = 4 * (row * size + column);
      const step = Math.round(255 * Math.min(1, Math.max(0, (value - low) / (high - low))));
      image.data.set(table.subarray(4 * step, 4 * step + 4), to);
      if (!this.field.inside[i]) image.data[to + 3] = 0;
    });
    context.putImageData(image, 0, 0);
    const strip = this.bar.getContext("2d")!, row = strip.createImageData(128, 1);
    for (let i = 0; i < 128; i++) row.data.set(table.subarray(8 * i, 8 * i + 4), 4 * i);
    strip.putImageData(row, 0, 0);
    this.legend.replaceChildren(number(label(low), 3), this.bar, number(label(high), 3));
    const best = this.gain && this.view === "next sensor" ? this.field.points[this.gain.best] : null;
    this.curves.replaceChildren(...(best
      ? [svg("circle", { class: "best", cx: this.x(best[0]), cy: this.y(best[1]), r: 11 })]
      : []));
  }

  private drawHandles(): void {
    const here = new Set(this.sensors.map((one) => one.id));
    for (const [id, handle] of this.drawn)
      if (!here.has(id)) {
        handle.remove();
        this.drawn.delete(id);
      }
    const ends = this.field.dim === 2 ? this.colourEnds() : [0, 1];
    this.sensors.forEach((one, k) => {
      let handle = this.drawn.get(one.id);
      if (!handle) {
        handle = this.handle(one.id);
        this.drawn.set(one.id, handle);
        this.handles.append(handle);
      }
      const { x, y, field } = this, [bottom, top] = y.range();
      const height = field.dim === 2 ? y(one.x[1]) : Math.min(bottom, Math.max(top, y(one.value)));
      handle.setAttribute("transform", `translate(${x(one.x[0])},${height})`);
      const place = one.x.map((v, axis) => `${field.stored.axes[axis]} ${plain(v)}`).join(", ");
      handle.setAttribute("aria-label", `Sensor ${k + 1} of ${field.stored.name}`);
      handle.setAttribute("aria-valuenow", String(one.value));
      handle.setAttribute("aria-valuetext", `${place}, value ${number(one.value)}, noise ${number(one.noise)}`);
      if (field.dim !== 2) return;
      const t = (field.forward(one.value) - ends[0]) / (ends[1] - ends[0]);
      (handle.lastElementChild as SVGElement).style.fill = interpolateViridis(Math.min(1, Math.max(0, t)));
    });
  }

  /** Put the keyboard on a sensor. */
  focus(id: number): void {
    this.drawn.get(id)?.focus();
  }

  private handle(id: number): SVGGElement {
    const found = svg("g", { class: "sensor", tabindex: this.focusable ? 0 : -1, role: "slider" },
      svg("circle", { class: "target", r: TOUCH }), svg("circle", { class: "dot", r: 6 }));
    found.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      found.setPointerCapture(event.pointerId);
      found.focus();
    });
    found.addEventListener("pointermove", (event) => {
      if (found.hasPointerCapture(event.pointerId)) this.owner.change(id, this.place(event));
    });
    found.addEventListener("click", (event) => event.stopPropagation());
    found.addEventListener("keydown", (event) => this.key(event, id));
    return found;
  }

  /** Where a pointer is, in the units of the field: place, and in one dimension the value. */
  private place(event: MouseEvent): { x: number[]; value?: number } {
    const box = this.plot.getBoundingClientRect(), { field } = this;
    const within = (scale: Scale, at: number) => {
      const [a, b] = scale.range();
      const [low, high] = scale.domain();
      return neat(scale.invert(Math.min(Math.max(at, Math.min(a, b)), Math.max(a, b))), low, high);
    };
    const x = within(this.x, event.clientX - box.left), y = within(this.y, event.clientY - box.top);
    return field.dim === 1 ? { x: [x], value: y } : { x: [x, y] };
  }

  private clicked(event: MouseEvent): void {
    const box = this.plot.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const [left, right] = this.x.range(), [bottom, top] = this.y.range();
    if (x < left || x > right || y < top || y > bottom) return;
    const place = this.place(event);
    this.owner.add(this.fieldNumber, place.x, place.value ?? null);
  }

  private key(event: KeyboardEvent, id: number): void {
    const one = this.sensors.find((sensor) => sensor.id === id);
    if (!one) return;
    const { field } = this, step = event.shiftKey ? 0.1 : 0.01;
    const moved = (axis: number, by: number) => {
      const low = field.lower[axis], high = field.upper[axis], x = one.x.slice();
      x[axis] = neat(x[axis] + by * (high - low), low, high);
      return { x };
    };
    const valued = (by: number) => {
      const value = field.inverse(field.forward(one.value) + by * (this.high - this.low));
      return { value: Number(value.toPrecision(4)) };
    };
    const changes: Record<string, () => Partial<Sensor>> = {
      ArrowLeft: () => moved(0, -step), ArrowRight: () => moved(0, step),
      ArrowUp: () => (field.dim === 1 ? valued(step) : moved(1, step)),
      ArrowDown: () => (field.dim === 1 ? valued(-step) : moved(1, -step)),
      PageUp: () => valued(step), PageDown: () => valued(-step),
      "+": () => valued(step), "-": () => valued(-step),
    };
    if (event.key in changes) this.owner.change(id, changes[event.key]());
    else if (event.key === "Delete" || event.key === "Backspace") this.owner.remove(id);
    else if (event.key === "Enter") this.owner.edit(id);
    else return;
    event.preventDefault();
  }

  private hover(event: MouseEvent): void {
    if (event.buttons) return; // a sensor is dragged
    const { x } = this.place(event), { field, answer } = this;
    let best = 0, least = Infinity;
    field.points.forEach((point, i) => {
      const distance = point.reduce((sum, v, axis) =>
        sum + ((v - x[axis]) / (field.upper[axis] - field.lower[axis])) ** 2, 0);
      if (distance < least) [best, least] = [i, distance];
    });
    const [mean, std] = [answer.mean[best], answer.std[best]];
    const [low, high] = [mean - Z * std, mean + Z * std].map((v) => number(this.value(v)));
    const place = field.neat(field.points[best]).map(plain).join(", ");
    this.readout.textContent = `${field.stored.name}(${place}): 95 % in ${low} to ${high}`;
  }
}

const tables = new Map<unknown, Uint8ClampedArray>();

/** 256 colours, four bytes each. */
function colours(scheme: (t: number) => string): Uint8ClampedArray {
  let found = tables.get(scheme);
  if (!found) {
    found = new Uint8ClampedArray(1024);
    for (let i = 0; i < 256; i++) {
      const text = scheme(i / 255);
      const parts = text.startsWith("#")
        ? [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16))
        : text.match(/\d+/g)!.map(Number);
      found.set([...parts.slice(0, 3), 255], 4 * i);
    }
    tables.set(scheme, found);
  }
  return found;
}
