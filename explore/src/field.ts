// One field: what it is called, where it lives, and its mean and modes at any point.
import { Matrix, solve } from "ml-matrix";
import { matrix, unpack, type Packed, type Rows } from "./arrays";

export interface StoredDomain {
  dim: 1 | 2;
  box: [number[], number[]];
  lower?: number[];
  upper?: number[];
  shape?: number[];
  periodic?: boolean | boolean[];
  /** Points, from the lower ends of all of them. */
  cloud?: Packed;
}

export interface StoredField {
  name: string;
  units: string;
  /** Name and units of each coordinate. */
  axes: string[];
  input: boolean;
  log: boolean;
  scale: number;
  domain: StoredDomain;
  /** Of each point that is shown, if the field has values there; null if at all of them. */
  inside: Packed | null;
  mean: Packed;
  factor: Packed;
  least: number;
  remainder: Packed | null;
  noise: number;
  target: Packed | null;
  range: [number | null, number | null];
}

const POINTS = 6;
const NEIGHBOURS = { 1: 6, 2: 16 };
export const SHOWN = { 1: 201, 2: 64 };

type Weights = [index: number[], weight: number[]];

/** What a field is at some points: mean, modes, and the std of what its modes leave out. */
export interface Values {
  mean: Float64Array;
  modes: Rows;
  left: Float64Array;
}

export class Field {
  readonly label: string;
  readonly lower: number[];
  readonly upper: number[];
  /** Points that are shown, each with its coordinates. */
  readonly points: number[][];
  /** Mean and modes there. */
  readonly shown: Values;
  /** False where the field has no values. */
  readonly inside: boolean[];
  /** Rows on the modes whose variances sum to the mean variance of the field. */
  readonly target: Rows | null;
  private readonly mean: Rows;
  private readonly factor: Rows;
  private readonly remainder: Rows | null;
  private readonly cloud: Rows | null;

  constructor(readonly stored: StoredField) {
    const { name, units, domain } = stored;
    this.label = units ? `${name} [${units}]` : name;
    [this.lower, this.upper] = domain.box;
    this.mean = unpack(stored.mean);
    this.factor = unpack(stored.factor);
    this.remainder = stored.remainder && unpack(stored.remainder);
    this.target = stored.target && unpack(stored.target);
    this.cloud = domain.cloud ? unpack(domain.cloud) : null;
    this.cloud?.data.forEach((value, i, all) => {
      all[i] = value / this.extent(i % domain.dim);
    });
    const axes = this.lower.map((low, axis) => {
      const n = SHOWN[domain.dim];
      return Array.from({ length: n }, (_, i) => low + ((this.upper[axis] - low) * i) / (n - 1));
    });
    this.points = domain.dim === 1
      ? axes[0].map((x) => [x])
      : axes[0].flatMap((x) => axes[1].map((y) => [x, y]));
    this.shown = this.at(this.points);
    const inside = stored.inside && unpack(stored.inside).data;
    this.inside = this.points.map((_, i) => !inside || inside[i] > 0);
  }

  /** Mean and modes at the points that are stored. */
  get nodes(): { mean: Float64Array; modes: Rows } {
    return { mean: this.mean.data, modes: this.factor };
  }

  get dim(): 1 | 2 {
    return this.stored.domain.dim;
  }

  /** Map a value of the field to the field that the law is stated in, in its own units. */
  forward(value: number): number {
    return this.stored.log ? Math.log(value) : value;
  }

  inverse(value: number): number {
    return this.stored.log ? Math.exp(value) : value;
  }

  at(points: number[][]): Values {
    const k = this.factor.columns;
    const found: Values = {
      mean: new Float64Array(points.length),
      modes: matrix(points.length, k),
      left: new Float64Array(points.length).fill(this.stored.input ? this.stored.least : 0),
    };
    const { data } = this.factor, out = found.modes.data;
    points.forEach((x, row) => {
      const [index, weight] = this.cloud ? spline(this.cloud, this.unit(x)) : lagrange(this.stored.domain, x);
      let left = 0;
      index.forEach((node, j) => {
        const w = weight[j];
        found.mean[row] += w * this.mean.data[node];
        left += w * (this.remainder?.data[node] ?? 0);
        for (let c = 0, to = row * k, from = node * k; c < k; c++) out[to + c] += w * data[from + c];
      });
      if (this.remainder) found.left[row] = Math.abs(left);
    });
    return found;
  }

  /** A place in round numbers: each coordinate to a thousandth of what its axis shows. */
  neat(x: number[]): number[] {
    return x.map((value, axis) => neat(value, this.lower[axis], this.upper[axis]));
  }

  /** Where a point of a cloud is in the unit box of its points, in which distances are measured. */
  private unit(x: number[]): number[] {
    return x.map((value, axis) => (value - this.stored.domain.lower![axis]) / this.extent(axis));
  }

  private extent(axis: number): number {
    const { lower, upper } = this.stored.domain;
    return upper![axis] - lower![axis] || 1; // a single point has none
  }
}

/** Round a number to a thousandth of the range that it stays in. */
export function neat(value: number, low: number, high: number): number {
  const digits = -Math.floor(Math.log10((high - low) / 1000)), scale = 10 ** digits;
  const most = Math.floor(high * scale), least = Math.ceil(low * scale);
  return Number((Math.min(most, Math.max(least, Math.round(value * scale))) / scale).toFixed(Math.max(0, digits)));
}

/** Lagrange polynomials on the nearest nodes of each axis (`uqsonet.fields.grid.Grid.interpolate`). */
function lagrange(domain: StoredDomain, x: number[]): Weights {
  let index = [0], weights = [1];
  domain.shape!.forEach((n, axis) => {
    const low = domain.lower![axis], high = domain.upper![axis];
    const repeats = Array.isArray(domain.periodic) ? domain.periodic[axis] : domain.periodic;
    const position = ((x[axis] - low) / (high - low)) * (repeats ? n : n - 1);
    const points = Math.min(POINTS, n);
    let start = Math.floor(position) - (Math.floor(points / 2) - 1);
    if (!repeats) start = Math.min(Math.max(start, 0), n - points);
    let offset = position - start;
    if (Math.abs(offset - Math.round(offset)) < 1e-7 * n) offset = Math.round(offset);
    const columns: number[] = [], factors: number[] = [];
    for (let j = 0; j < points; j++) {
      let factor = 1;
      for (let l = 0; l < points; l++) if (l !== j) factor *= (offset - l) / (j - l);
      if (factor === 0) continue;
      columns.push((((start + j) % n) + n) % n);
      factors.push(factor);
    }
    index = index.flatMap((i) => columns.map((c) => i * n + c));
    weights = weights.flatMap((w) => factors.map((f) => w * f));
  });
  return [index, weights];
}

function nearest(cloud: Rows, x: number[], count: number): [number, number][] {
  const found: [number, number][] = [];
  for (let i = 0; i < cloud.rows; i++) {
    let square = 0;
    for (let axis = 0; axis < x.length; axis++)
      square += (cloud.data[i * cloud.columns + axis] - x[axis]) ** 2;
    if (found.length === count && square >= found[count - 1][1]) continue;
    let at = found.length;
    while (at > 0 && found[at - 1][1] > square) at--;
    found.splice(at, 0, [i, square]);
    if (found.length > count) found.pop();
  }
  return found.map(([i, square]) => [i, Math.sqrt(square)]);
}

/** A local polyharmonic spline (`uqsonet.fields.cloud.PointCloud.interpolate`), in the unit box. */
function spline(cloud: Rows, x: number[]): Weights {
  const dim = x.length as 1 | 2;
  const found = nearest(cloud, x, Math.min(NEIGHBOURS[dim], cloud.rows));
  const index = found.map(([i]) => i), count = index.length;
  const scale = Math.max(found[count - 1][1], 1e-300);
  const near = index.map((i) =>
    x.map((value, axis) => (cloud.data[i * cloud.columns + axis] - value) / scale));
  const alone: Weights = [[index[0]], [1]];
  if (found[0][1] <= 1e-7 * scale) return alone;
  const size = count + dim + 1;
  const system = Matrix.zeros(size, size), right = Matrix.zeros(size, 1);
  const cube = (p: number[], q: number[]) =>
    Math.hypot(...p.map((value, axis) => value - q[axis])) ** 3;
  near.forEach((p, i) => {
    near.forEach((q, j) => system.set(i, j, cube(p, q)));
    [1, ...p].forEach((value, j) => {
      system.set(i, count + j, value);
      system.set(count + j, i, value);
    });
    right.set(i, 0, Math.hypot(...p) ** 3);
  });
  right.set(count, 0, 1);
  try {
    const weights = solve(system, right).getColumn(0).slice(0, count);
    const sum = weights.reduce((total, w) => total + Math.abs(w), 0);
    return sum < 100 ? [index, weights] : alone;
  } catch {
    return alone; // the neighbours lie on one line
  }
}
