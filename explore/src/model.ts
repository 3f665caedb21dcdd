// The law of all fields given sensors: what `Emulator.condition` computes, for the same draws.
import { EigenvalueDecomposition, Matrix, SingularValueDecomposition } from "ml-matrix";
import {
  add, apply, cholesky, dot, evenNormals, matrix, normals, slice, solveLower, stacked, times, timesTransposed,
  transposed, unpack, type Packed, type Rows, type Sobol,
} from "./arrays";
import { Field, type StoredField, type Values } from "./field";
import type { StoredReference } from "./reference";
import { network, repeated, type Network, type StoredNetwork } from "./network";

export interface StoredModel {
  title: string;
  name: string;
  version: string;
  seed: number;
  draws: number;
  sobol: Sobol | null;
  straight: { weight: Packed; offset: Packed };
  network: StoredNetwork | null;
  residual: { covariance: Packed; slopes: Packed | null; draws: Packed } | null;
  conformal: boolean;
  reference: StoredReference | null;
  fields: StoredField[];
}

export interface Sensor {
  field: number;
  x: number[];
  value: number;
  noise: number;
}

/** Draws behind an answer to sensors of u where the branch is not linear. */
const SPLIT_DRAWS = 1024;
const NEWTON = 5;
/** Noise, relative to a field's standard deviation, that the test of sensors allows at least. */
const LEAST_LEVEL = 0.02;
export const SAMPLES = 6;

export class Model {
  readonly fields: Field[];
  readonly weight: Rows;
  readonly offset: Float64Array;
  readonly network: Network | null;
  readonly z: Rows;
  readonly covariance: Rows | null;
  readonly slopes: Rows | null;
  readonly residuals: Rows | null;
  /** Standard deviation of the (scaled) inputs, over their points. */
  readonly spread: number;

  constructor(readonly stored: StoredModel) {
    this.fields = stored.fields.map((field) => new Field(field));
    this.weight = unpack(stored.straight.weight);
    this.offset = unpack(stored.straight.offset).data;
    this.network = stored.network && network(stored.network);
    const { residual } = stored;
    this.covariance = residual && unpack(residual.covariance);
    this.slopes = residual?.slopes ? unpack(residual.slopes) : null;
    this.residuals = residual && unpack(residual.draws);
    const r = this.weight.columns;
    const inputs = this.fields.filter((field) => field.stored.input);
    const squares = inputs.map((field) => priorVariance(field.shown.modes, r).reduce((a, b) => a + b, 0));
    const points = inputs.reduce((sum, field) => sum + field.points.length, 0);
    this.spread = Math.sqrt(squares.reduce((a, b) => a + b, 0) / points);
    // A learned part's moments need all draws, a linear branch only the samples that are shown.
    this.z = stored.sobol ? evenNormals(stored.sobol, stored.draws) : matrix(16, r, normals(stored.seed, 16 * r));
  }
}

/** A Gaussian law: N(0, I) narrowed along a few orthonormal directions (`uqsonet.gaussian`). */
interface Gaussian {
  mean: Float64Array;
  directions: Rows;
  reduction: Float64Array;
}

export function condition(rows: Rows, residual: Float64Array, levels: Float64Array): Gaussian {
  const { rows: m, columns: r } = rows;
  const mean = new Float64Array(r);
  if (m === 0) return { mean, directions: matrix(0, r), reduction: mean.subarray(0, 0) };
  const largest = levels.reduce((a, b) => Math.max(a, b), 0);
  const noise = largest > 0 ? 1 : 0;
  const level = levels.map((l) => (largest > 0 ? Math.max(l, 1e-6 * largest) : 1));
  const white = new Matrix(m, r);
  for (let i = 0; i < m; i++)
    for (let j = 0; j < r; j++) white.set(i, j, rows.data[i * r + j] / level[i]);
  const svd = new SingularValueDecomposition(white, { autoTranspose: true });
  const size = Math.min(m, r), singular = svd.diagonal;
  const floor = Math.max(...singular) * r * 2 ** -52;
  const directions = matrix(size, r), reduction = new Float64Array(size);
  for (let k = 0; k < size; k++) {
    let projected = 0;
    for (let i = 0; i < m; i++)
      projected += (svd.leftSingularVectors.get(i, k) * residual[i]) / level[i];
    for (let j = 0; j < r; j++) directions.data[k * r + j] = svd.rightSingularVectors.get(j, k);
    if (singular[k] <= floor) continue;
    const total = singular[k] ** 2 + noise;
    add(mean, 0, directions.data, k * r, r, (singular[k] / total) * projected);
    reduction[k] = 1 - noise / Math.sqrt(total);
  }
  return { mean, directions, reduction };
}

/** rows @ root, the root being I - directionsᵀ diag(reduction) directions. */
function spread(law: Gaussian, rows: Rows): Rows {
  const { directions: d, reduction } = law;
  const seen = timesTransposed(rows, d);
  const found = matrix(rows.rows, rows.columns, rows.data.slice());
  for (let i = 0; i < rows.rows; i++)
    for (let k = 0; k < d.rows; k++)
      add(found.data, i * d.columns, d.data, k * d.columns, d.columns,
        -seen.data[i * d.rows + k] * reduction[k]);
  return found;
}

export function coordinates(law: Gaussian, normal: Rows): Rows {
  const found = spread(law, normal);
  for (let i = 0; i < found.rows; i++) add(found.data, i * found.columns, law.mean, 0, found.columns, 1);
  return found;
}

/** Readings of outputs, and what they say beyond the branch's answer (`OutputReadings`). */
class Readings {
  readonly gain: Rows | null;
  readonly noise: Rows;

  constructor(
    readonly rows: Rows, readonly values: Float64Array, readonly variance: Float64Array,
    readonly covariance: Rows | null,
  ) {
    const m = rows.rows;
    const through = covariance && times(rows, covariance);
    this.noise = through ? timesTransposed(through, rows) : matrix(m, m);
    variance.forEach((v, i) => (this.noise.data[i * m + i] += v));
    const root = cholesky(this.noise);
    this.gain = through && transposed(solveLower(root, solveLower(root, through), true));
  }

  /** I - gain rows. */
  get kept(): Rows {
    const found = times(this.gain!, this.rows), p = found.rows;
    for (let i = 0; i < found.data.length; i++) found.data[i] = -found.data[i];
    for (let i = 0; i < p; i++) found.data[i * p + i] += 1;
    return found;
  }
}

/** Mean and covariance of coefficients. */
interface Moments {
  mean: Float64Array;
  covariance: Rows;
}

/** A field at its shown points, in the units of the (transformed) field. */
export interface FieldAnswer {
  mean: Float64Array;
  std: Float64Array;
  samples: Float64Array[];
}

/** Where a further sensor of a field takes how much from the mean variance of an output. */
export interface Gain {
  share: Float64Array;
  best: number;
}

export class Answer {
  /** Draws that all moments come from. */
  readonly total: number;
  readonly improbable: boolean;
  /** Draws so far. */
  size = 0;
  private readonly given: Gaussian;
  private readonly law: Gaussian;
  private readonly root: Rows | null;
  private readonly readings: Readings | null;
  private readonly split: Split | null = null;
  private a: Rows;
  private s: Rows;
  private g: Rows | null;
  private logWeights = new Float64Array(0);
  private kept: Moments | null = null;

  constructor(private readonly model: Model, sensors: Sensor[]) {
    const [inputs, outputs] = [true, false].map((side) =>
      sensors.filter((one) => model.fields[one.field].stored.input === side));
    const r = model.weight.columns, p = model.weight.rows;
    const seen = read(model.fields, inputs, r);
    this.given = this.law = condition(seen.rows, seen.values, seen.variance.map(Math.sqrt));
    this.improbable = this.improbableInputs(seen, model.spread);
    this.root = this.residualRoot();
    const heard = read(model.fields, outputs, p);
    this.readings = outputs.length
      ? new Readings(heard.rows, heard.values, heard.variance, this.root && timesTransposed(this.root, this.root))
      : null;
    if (this.readings && model.network) this.split = new Split(model, this.given, this.readings);
    else if (this.readings) {
      const lower = cholesky(this.readings.noise), m = outputs.length;
      const through = apply(heard.rows, model.offset);
      const off = matrix(m, 1, heard.values.map((value, i) => value - through[i]));
      const ahead = solveLower(lower, off), weight = solveLower(lower, times(heard.rows, model.weight));
      const ones = new Float64Array(m).fill(1);
      const levels = [...seen.variance.map(Math.sqrt), ...ones];
      this.law = condition(
        stacked(seen.rows, weight), Float64Array.from([...seen.values, ...ahead.data]),
        Float64Array.from(levels));
    }
    this.total = this.split ? SPLIT_DRAWS : model.z.rows;
    this.a = matrix(0, r);
    this.s = matrix(0, p);
    this.g = model.network && matrix(0, p);
  }

  /**
   * Whether sensors of one input field or more are improbable (one in ten thousand) before any
   * measurement, as `Emulator.condition` warns.
   */
  private improbableInputs(seen: ReturnType<typeof read>, spread: number): boolean {
    const m = seen.values.length;
    if (!m) return false;
    const covariance = timesTransposed(seen.rows, seen.rows);
    seen.variance.forEach((v, i) => (covariance.data[i * m + i] += v + (LEAST_LEVEL * spread) ** 2));
    const white = solveLower(cholesky(covariance), matrix(m, 1, seen.values)).data;
    // The quantile of a chi-squared law (Wilson and Hilferty).
    const most = m * (1 - 2 / (9 * m) + 3.719 * Math.sqrt(2 / (9 * m))) ** 3;
    return dot(white, 0, white, 0, m) > most;
  }

  /** Whether sensors of outputs have to be sampled for. */
  get sampledSensors(): boolean {
    return this.split !== null;
  }

  /** Whether the answer is worth fewer draws than were made, and how many. */
  get effective(): number | null {
    return this.split && 1 / this.weights().reduce((sum, w) => sum + w * w, 0);
  }

  private residualRoot(): Rows | null {
    const { covariance, slopes } = this.model;
    if (!covariance) return null;
    const p = covariance.rows, found = new Matrix(p, p);
    const change = slopes && apply(transposed(slopes), this.given.mean);
    for (let i = 0, at = 0; i < p; i++)
      for (let j = i; j < p; j++, at++) {
        const value = covariance.data[i * p + j] + (change ? change[at] : 0);
        found.set(i, j, value);
        found.set(j, i, value);
      }
    const eigen = new EigenvalueDecomposition(found, { assumeSymmetric: true });
    const v = eigen.eigenvectorMatrix, scaled = matrix(p, p), plain = matrix(p, p);
    for (let i = 0; i < p; i++)
      for (let k = 0; k < p; k++) {
        plain.data[i * p + k] = v.get(i, k);
        scaled.data[i * p + k] = v.get(i, k) * Math.sqrt(Math.max(0, eigen.realEigenvalues[k]));
      }
    return timesTransposed(scaled, plain);
  }

  /** Draw until there are `size` samples. */
  extend(size: number): void {
    const end = Math.min(size, this.total);
    if (end <= this.size) return;
    const z = slice(this.model.z, this.size, end);
    let a: Rows;
    if (this.split) {
      const found = this.split.completed(z, this.size);
      a = found.a;
      this.logWeights = Float64Array.from([...this.logWeights, ...found.weights]);
    } else a = coordinates(this.law, z);
    this.a = stacked(this.a, a);
    const s = straight(this.model, a);
    this.s = stacked(this.s, s);
    if (this.g) this.g = stacked(this.g, this.model.network!.evaluate(a).value);
    this.size = end;
    this.kept = null;
  }

  private weights(): Float64Array {
    const most = this.logWeights.reduce((x, y) => Math.max(x, y), -Infinity);
    const found = this.logWeights.map((w) => Math.exp(w - most));
    const sum = found.reduce((x, y) => x + y, 0);
    return found.map((w) => w / sum);
  }

  /** Coefficients of the output for each draw, before what the operator leaves over. */
  private branch(): Rows {
    const found = matrix(this.s.rows, this.s.columns, this.s.data.slice());
    if (this.g) add(found.data, 0, this.g.data, 0, found.data.length, 1);
    return found;
  }

  /** Mean and covariance of the output's coefficients. */
  moments(): Moments {
    if (this.kept) return this.kept;
    const { model, readings } = this;
    let mean: Float64Array, covariance: Rows;
    if (this.split) {
      const c = this.branch();
      mean = weighted(c, this.weights());
      covariance = square(centred(c, mean, this.weights()));
    } else {
      mean = apply(model.weight, this.law.mean);
      add(mean, 0, model.offset, 0, mean.length, 1);
      const root = spread(this.law, model.weight);
      covariance = timesTransposed(root, root);
      if (this.g) {
        // The linear part is known: draws serve for the rest.
        const n = this.g.rows, p = mean.length, added = average(this.g);
        add(mean, 0, added, 0, p, 1);
        const g = centred(this.g, added), half = centred(this.s, average(this.s));
        add(half.data, 0, g.data, 0, g.data.length, 0.5);
        const product = timesTransposed(transposed(half), transposed(g));
        for (let i = 0; i < p; i++)
          for (let j = 0; j < p; j++)
            covariance.data[i * p + j] += (product.data[i * p + j] + product.data[j * p + i]) / (n - 1);
      }
    }
    if (readings?.gain) {
      const { kept } = readings, p = mean.length;
      const off = apply(readings.rows, mean).map((value, i) => readings.values[i] - value);
      add(mean, 0, apply(readings.gain, off), 0, p, 1);
      covariance = timesTransposed(times(kept, covariance), kept);
      add(covariance.data, 0, times(kept, readings.covariance!).data, 0, p * p, 1);
    } else if (this.root) {
      const rest = timesTransposed(this.root, this.root);
      add(covariance.data, 0, rest.data, 0, rest.data.length, 1);
    }
    return (this.kept = { mean, covariance });
  }

  /** A field at its shown points, with some of the draws. */
  field(number: number, size = SAMPLES): FieldAnswer {
    const field = this.model.fields[number], { shown, stored: { input, scale } } = field;
    const { mean, variance } = input ? this.ofInput(shown) : this.ofOutput(shown);
    const drawn = size === 0 ? [] : input ? this.inputSamples() : this.outputSamples();
    const samples = drawn.slice(0, size).map((row) => {
      const found = apply(shown.modes, row);
      return found.map((value, i) => (value + shown.mean[i]) * scale);
    });
    return {
      mean: mean.map((value) => value * scale),
      std: variance.map((value, i) => Math.sqrt(Math.max(0, value) + shown.left[i] ** 2) * scale),
      samples,
    };
  }

  private ofOutput(values: Values): { mean: Float64Array; variance: Float64Array } {
    const { mean, covariance } = this.moments(), { modes } = values, p = modes.columns;
    const through = timesTransposed(modes, covariance);
    const found = apply(modes, mean);
    add(found, 0, values.mean, 0, found.length, 1);
    return { mean: found, variance: found.map((_, i) => dot(through.data, i * p, modes.data, i * p, p)) };
  }

  private ofInput(values: Values): { mean: Float64Array; variance: Float64Array } {
    const { modes } = values, r = modes.columns;
    let variance: Float64Array, centre = this.law.mean;
    if (this.split) {
      const w = this.weights();
      centre = weighted(this.a, w);
      const off = timesTransposed(modes, centred(this.a, centre, w)), n = off.columns;
      variance = new Float64Array(modes.rows).map((_, i) => dot(off.data, i * n, off.data, i * n, n));
    } else {
      const { directions, reduction } = this.law, k = directions.rows;
      const seen = timesTransposed(modes, directions);
      variance = priorVariance(modes, r).map((value, i) => {
        for (let j = 0; j < k; j++)
          value -= reduction[j] * (2 - reduction[j]) * seen.data[i * k + j] ** 2;
        return value;
      });
    }
    const mean = apply(modes, centre);
    add(mean, 0, values.mean, 0, mean.length, 1);
    return { mean, variance };
  }

  /** Numbers of the draws that are shown as functions. */
  private picked(): number[] {
    if (!this.split) return Array.from({ length: Math.min(SAMPLES, this.size) }, (_, i) => i);
    const w = this.weights(), found: number[] = [];
    for (let i = 0, sum = 0; i < w.length; i++) {
      sum += w[i];
      while (found.length < SAMPLES && sum > (found.length + 0.5) / SAMPLES) found.push(i);
    }
    return found;
  }

  private inputSamples(): Float64Array[] {
    const r = this.a.columns;
    return this.picked().map((i) => this.a.data.slice(i * r, (i + 1) * r));
  }

  private outputSamples(): Float64Array[] {
    const c = this.branch(), p = c.columns, { root, readings } = this, { residuals } = this.model;
    return this.picked().map((i, number) => {
      const found = c.data.slice(i * p, (i + 1) * p);
      if (!root || !residuals) return found;
      add(found, 0, apply(root, residuals.data.slice(number * p, (number + 1) * p)), 0, p, 1);
      if (!readings?.gain) return found;
      // Matheron's rule: as if the readings had been made of this function, and were moved.
      const noise = normals(this.model.stored.seed + 2 + number, readings.values.length);
      const off = apply(readings.rows, found).map((value, j) =>
        readings.values[j] - value - noise[j] * Math.sqrt(readings.variance[j]));
      add(found, 0, apply(readings.gain, off), 0, p, 1);
      return found;
    });
  }

  /** Share of an output's mean variance that a sensor at each shown point is expected to take. */
  gain(number: number, target: number): Gain {
    const field = this.model.fields[number], { stored, shown } = field;
    const { covariance } = this.moments(), root = this.model.fields[target].target!;
    const through = times(root, stored.input ? this.cross() : covariance);
    const before = timesTransposed(times(root, covariance), root);
    let whole = 0;
    for (let i = 0; i < before.rows; i++) whole += before.data[i * before.rows + i];
    const { variance } = stored.input ? this.ofInput(shown) : this.ofOutput(shown);
    const seen = timesTransposed(shown.modes, through), q = seen.columns;
    const noise = (stored.noise / stored.scale) ** 2 + stored.least ** 2;
    const share = variance.map((value, i) =>
      dot(seen.data, i * q, seen.data, i * q, q) / (Math.max(0, value) + noise + 1e-300) / whole);
    let best = 0;
    share.forEach((value, i) => {
      if (field.inside[i] && value > share[best]) best = i;
    });
    return { share, best };
  }

  /** Covariance (p, r) of the coefficients of output and input. */
  private cross(): Rows {
    let found: Rows;
    if (this.split) {
      const w = this.weights(), c = this.branch();
      found = timesTransposed(
        transposed(centred(c, weighted(c, w), w)), transposed(centred(this.a, weighted(this.a, w), w)));
    } else {
      found = spread(this.law, spread(this.law, this.model.weight));
      if (this.g) {
        const product = timesTransposed(
          transposed(centred(this.g, average(this.g))), transposed(centred(this.a, average(this.a))));
        add(found.data, 0, product.data, 0, product.data.length, 1 / (this.g.rows - 1));
      }
    }
    return this.readings?.gain ? times(this.readings.kept, found) : found;
  }
}

/** What sensors of one side see of its coefficients; values less the mean, variances of noise. */
export function read(fields: Field[], sensors: Sensor[], columns: number) {
  const rows = matrix(sensors.length, columns);
  const values = new Float64Array(sensors.length), variance = values.slice();
  sensors.forEach((one, i) => {
    const field = fields[one.field], { scale, least } = field.stored;
    const at = field.at([one.x]);
    rows.data.set(at.modes.data, i * columns);
    values[i] = field.forward(one.value) / scale - at.mean[0];
    variance[i] = (one.noise / scale) ** 2 + least ** 2;
  });
  return { rows, values, variance };
}

/**
 * Sensors of outputs where the branch is not linear (`uqsonet.joint.Split`): of each draw the few
 * directions that readings see are solved for by Gauss and Newton's steps, and the draw is weighted.
 */
class Split {
  private readonly root: Rows;
  private readonly basis: Rows;
  private readonly along: Rows;

  constructor(private readonly model: Model, private readonly given: Gaussian, private readonly readings: Readings) {
    this.root = cholesky(readings.noise);
    // What readings see of the branch at the mean of the law, by differences along all coefficients.
    const r = given.mean.length, mean = matrix(1, r, given.mean);
    const eye = matrix(r, r);
    for (let i = 0; i < r; i++) eye.data[i * r + i] = 1;
    const slopes = this.slopes(mean, eye).slope; // (r, p)
    const weight = timesTransposed(readings.rows, slopes); // (m, r)
    const narrow = spread(given, weight);
    const svd = new SingularValueDecomposition(
      Matrix.from1DArray(narrow.rows, r, narrow.data as unknown as number[]), { autoTranspose: true });
    const size = Math.min(narrow.rows, r);
    this.basis = matrix(size, r);
    for (let k = 0; k < size; k++)
      for (let j = 0; j < r; j++) this.basis.data[k * r + j] = svd.rightSingularVectors.get(j, k);
    this.along = spread(given, this.basis);
  }

  /** Coefficients of the output, and their slopes: row j n + i is direction j of draw i. */
  private slopes(a: Rows, directions: Rows): { c: Rows; slope: Rows } {
    const c = straight(this.model, a);
    const slope = repeated(timesTransposed(directions, this.model.weight), a.rows);
    const found = this.model.network!.evaluate(a, directions);
    add(c.data, 0, found.value.data, 0, c.data.length, 1);
    add(slope.data, 0, found.slopes!.data, 0, slope.data.length, 1);
    return { c, slope };
  }

  /** Draws (n, r) given all readings, and the logarithms of their weights. */
  completed(z: Rows, first: number): { a: Rows; weights: Float64Array } {
    const { basis, readings, model } = this, n = z.rows, k = basis.rows, m = readings.values.length;
    const inside = timesTransposed(z, basis);
    const rest = matrix(n, z.columns, z.data.slice());
    add(rest.data, 0, times(inside, basis).data, 0, rest.data.length, -1);
    const at = (s: Rows) => {
      const found = times(s, basis);
      add(found.data, 0, rest.data, 0, rest.data.length, 1);
      return coordinates(this.given, found);
    };
    const white = (c: Rows, i: number): Float64Array => {
      const seen = apply(readings.rows, c.data.subarray(i * c.columns, (i + 1) * c.columns));
      return solveLower(this.root, matrix(m, 1, seen.map((v, j) => readings.values[j] - v))).data;
    };
    const s = matrix(n, k), best = matrix(n, k), centre = matrix(n, k);
    const cost = new Float64Array(n).fill(Infinity), damping = new Float64Array(n).fill(1);
    const roots: Rows[] = [];
    for (let step = 0; step < NEWTON; step++) {
      const { c, slope } = this.slopes(at(s), this.along), p = c.columns;
      for (let i = 0; i < n; i++) {
        const off = white(c, i), own = s.data.slice(i * k, (i + 1) * k);
        const here = dot(own, 0, own, 0, k) + dot(off, 0, off, 0, m);
        if (here < cost[i]) {
          cost[i] = here;
          damping[i] = 1;
          best.data.set(own, i * k);
          const seen = matrix(m, k);
          for (let j = 0; j < k; j++)
            for (let l = 0; l < m; l++)
              seen.data[l * k + j] = dot(readings.rows.data, l * p, slope.data, (j * n + i) * p, p);
          const across = transposed(solveLower(this.root, seen)); // (k, m)
          const precision = timesTransposed(across, across);
          for (let j = 0; j < k; j++) precision.data[j * k + j] += 1;
          roots[i] = cholesky(precision);
          const right = apply(across, off);
          add(right, 0, own, 0, k, -1);
          const solved = solveLower(roots[i], solveLower(roots[i], matrix(k, 1, right)), true);
          add(solved.data, 0, own, 0, k, 1);
          centre.data.set(solved.data, i * k);
        } else damping[i] /= 3;
        for (let j = i * k; j < (i + 1) * k; j++)
          s.data[j] = best.data[j] + damping[i] * (centre.data[j] - best.data[j]);
      }
    }
    const drawn = normals(model.stored.seed + 1, (first + n) * k).subarray(first * k);
    for (let i = 0; i < n; i++) {
      const normal = matrix(k, 1, drawn.slice(i * k, (i + 1) * k));
      add(best.data, i * k, solveLower(roots[i], normal, true).data, 0, k, 1);
    }
    const a = at(best), c = straight(model, a);
    add(c.data, 0, model.network!.evaluate(a).value.data, 0, c.data.length, 1);
    const weights = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      const off = white(c, i);
      let size = 0;
      for (let j = 0; j < k; j++) size += Math.log(roots[i].data[j * k + j]);
      const squares = dot(drawn, i * k, drawn, i * k, k)
        - dot(best.data, i * k, best.data, i * k, k) - dot(off, 0, off, 0, m);
      weights[i] = squares / 2 - size;
    }
    return { a, weights };
  }
}

function straight(model: Model, a: Rows): Rows {
  const found = timesTransposed(a, model.weight);
  for (let i = 0; i < found.rows; i++) add(found.data, i * found.columns, model.offset, 0, found.columns, 1);
  return found;
}

const average = (a: Rows) => weighted(a, new Float64Array(a.rows).fill(1 / a.rows));

function weighted(a: Rows, w: Float64Array): Float64Array {
  const found = new Float64Array(a.columns);
  for (let i = 0; i < a.rows; i++) add(found, 0, a.data, i * a.columns, a.columns, w[i]);
  return found;
}

/** Rows less their mean, each times the root of its weight if there are weights. */
function centred(a: Rows, mean: Float64Array, w?: Float64Array): Rows {
  const found = matrix(a.rows, a.columns, a.data.slice()), k = a.columns;
  for (let i = 0; i < a.rows; i++) {
    add(found.data, i * k, mean, 0, k, -1);
    if (w) for (let j = i * k; j < (i + 1) * k; j++) found.data[j] *= Math.sqrt(w[i]);
  }
  return found;
}

/** aᵀ a. */
function square(a: Rows): Rows {
  const across = transposed(a);
  return timesTransposed(across, across);
}

const variances = new WeakMap<Rows, Float64Array>();

/** Variances of the field before any measurement: sums of squares of the modes' rows, kept. */
function priorVariance(modes: Rows, r: number): Float64Array {
  let found = variances.get(modes);
  if (!found) {
    found = new Float64Array(modes.rows).map((_, i) => dot(modes.data, i * r, modes.data, i * r, r));
    variances.set(modes, found);
  }
  return found;
}
