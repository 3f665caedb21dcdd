// The picture of one field: a curve with its band, or a map; sensors on it can be moved.
import { scaleLinear, scaleLog, type ScaleContinuousNumeric } from "d3-scale";
import { interpolateMagma, interpolateViridis } from "d3-scale-chromatic";
import { area, line } from "d3-shape";
import type { Field } from "./field";
import type { FieldAnswer, Gain, Sensor } from "./model";
import type { Exact } from "./reference";
import { element, number, svg } from "./dom";

/** Half of the width of a 95 % band, in standard deviations. */
export const Z = 1.959963984540054;

export const VIEWS = ["mean", "std", "sample", "next sensor"] as const;
export type View = (typeof VIEWS)[number];

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

const MARGIN = { left: 52, right: 12, top: 10, bottom: 34 };
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
  private readonly low: number;
  private readonly high: number;
  private readonly widest: number;
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
    this.answer = prior;
    const ends = Array.from(prior.mean, (m, i) => [m - 3 * prior.std[i], m + 3 * prior.std[i]]);
    this.low = Math.min(...ends.map(([a]) => a));
    this.high = Math.max(...ends.map(([, b]) => b));
    this.widest = Math.max(...prior.std);
    const side = field.stored.input ? "input" : "output";
    const shown = field.dim === 1 ? `: ${field.stored.log ? "median" : "mean"}, 95 % band, samples` : "";
    const title = element("h2", {}, `${field.label} `, element("small", {}, side + shown));
    const box = element("div", { class: "plot" });
    this.root = element("section", { class: `panel d${field.dim}`, "aria-label": `${side} ${field.label}, ${view}` }, title);
    if (field.dim === 2) {
      this.canvas.width = this.canvas.height = Math.sqrt(field.points.length);
      this.choice = element("select", { "aria-label": `What the map of ${field.stored.name} shows` },
        ...VIEWS.map((name) => element("option", {}, name)));
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

  private resized(): void {
    const width = this.plot.parentElement!.clientWidth, { field } = this;
    if (!width) return;
    const inner = width - MARGIN.left - MARGIN.right;
    const ratio = field.dim === 1 ? 0 : (field.upper[1] - field.lower[1]) / (field.upper[0] - field.lower[0]);
    const height = field.dim === 1 ? Math.min(260, 0.65 * width) : inner * Math.min(2, Math.max(0.3, ratio));
    const bottom = MARGIN.top + height;
    this.plot.setAttribute("width", String(width));
    this.plot.setAttribute("height", String(bottom + MARGIN.bottom));
    this.x = scaleLinear([field.lower[0], field.upper[0]], [MARGIN.left, width - MARGIN.right]);
    const range: [number, number] = [bottom, MARGIN.top];
    if (field.dim === 2) this.y = scaleLinear([field.lower[1], field.upper[1]], range);
    else if (field.stored.log) this.y = scaleLog([Math.exp(this.low), Math.exp(this.high)], range);
    else this.y = scaleLinear([this.low, this.high], range);
    Object.assign(this.canvas.style, {
      left: `${MARGIN.left}px`, top: `${MARGIN.top}px`, width: `${inner}px`, height: `${height}px`,
    });
    for (const [name, value] of Object.entries({ x: MARGIN.left, y: MARGIN.top, width: inner, height }))
      this.inside.setAttribute(name, String(value));
    this.drawAxes(width, bottom);
    this.draw();
  }

  private drawAxes(width: number, bottom: number): void {
    const { x, y, field } = this, parts: SVGElement[] = [];
    const count = Math.max(3, Math.floor(width / 90));
    for (const tick of x.ticks(count))
      parts.push(
        svg("line", { x1: x(tick), x2: x(tick), y1: MARGIN.top, y2: bottom + 4 }),
        svg("text", { x: x(tick), y: bottom + 17, "text-anchor": "middle" }, x.tickFormat(count)(tick)));
    const label = y.tickFormat(5, field.stored.log ? "~g" : undefined);
    for (const tick of y.ticks(5))
      parts.push(
        svg("line", { x1: MARGIN.left - 4, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) }),
        svg("text", { x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end" }, label(tick)));
    parts.push(svg("text", { x: width - MARGIN.right, y: bottom + 31, "text-anchor": "end" }, field.stored.axes[0]));
    if (field.dim === 2) parts.push(svg("text", { x: 12, y: MARGIN.top + 10 }, field.stored.axes[1]));
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
    const { answer: { mean, std, samples }, gain, view, low, high } = this;
    const back = (v: number) => this.value(v), same = (v: number) => v;
    if (view === "std") return { values: std, low: 0, high: this.widest, colour: interpolateMagma, label: same };
    if (view === "next sensor" && gain)
      return { values: gain.share, low: 0, high: gain.share[gain.best] || 1, colour: interpolateMagma, label: same };
    const values = (view === "sample" && samples[0]) || mean;
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
    this.sensors.forEach((one, k) => {
      let handle = this.drawn.get(one.id);
      if (!handle) {
        handle = this.handle(one.id);
        this.drawn.set(one.id, handle);
        this.handles.append(handle);
      }
      const { x, y, field } = this, [top, bottom] = [MARGIN.top, y.range()[0]];
      const height = field.dim === 2 ? y(one.x[1]) : Math.min(bottom, Math.max(top, y(one.value)));
      handle.setAttribute("transform", `translate(${x(one.x[0])},${height})`);
      const place = one.x.map((v, axis) => `${field.stored.axes[axis]} ${number(v)}`).join(", ");
      handle.setAttribute("aria-label", `Sensor ${k + 1} of ${field.stored.name}`);
      handle.setAttribute("aria-valuenow", String(one.value));
      handle.setAttribute("aria-valuetext", `${place}, value ${number(one.value)}, noise ${number(one.noise)}`);
      if (field.dim !== 2) return;
      const t = (field.forward(one.value) - this.low) / (this.high - this.low);
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
      return neat(scale.invert(Math.min(Math.max(at, Math.min(a, b)), Math.max(a, b))), scale);
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
      x[axis] = neat(Math.min(high, Math.max(low, x[axis] + by * (high - low))), axis ? this.y : this.x);
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
    const place = field.points[best].map((v) => number(v, 3)).join(", ");
    this.readout.textContent = `${field.stored.name}(${place}): 95 % in ${low} to ${high}`;
  }
}

/** Round a coordinate to a thousandth of what its axis shows. */
function neat(value: number, scale: Scale): number {
  const [a, b] = scale.domain();
  const step = 10 ** Math.floor(Math.log10(Math.abs(b - a) / 1000));
  const digits = Math.max(0, -Math.log10(step));
  return Number((Math.round(value / step) * step).toFixed(Math.round(digits)));
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
