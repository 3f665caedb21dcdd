// The exact answer of section 4.1: its own law of k, and its equation solved for each draw.
import { matrix, normals, timesTransposed, unpack, type Packed } from "./arrays";
import { Field, type StoredField } from "./field";
import { condition, coordinates, read, type Sensor } from "./model";

export interface StoredReference {
  mean: Packed;
  factor: Packed;
  source: Packed;
  coefficient: number;
}

/** Moments at the points of the grid. */
export interface Exact {
  points: number[];
  mean: Float64Array;
  std: Float64Array;
}

export class Reference {
  private readonly law: Field;
  private readonly source: Float64Array;
  private readonly outflow: Float64Array;
  private readonly points: number[];
  private readonly spacing: number;
  private z: Float64Array = new Float64Array(0);

  constructor(private readonly stored: StoredReference, k: StoredField, private readonly seed: number) {
    this.law = new Field({ ...k, mean: stored.mean, factor: stored.factor, least: 0 });
    this.source = unpack(stored.source).data;
    const n = this.source.length, low = k.domain.lower![0];
    this.spacing = (k.domain.upper![0] - low) / (n - 1);
    this.points = Array.from(this.source.keys(), (i) => low + i * this.spacing);
    this.outflow = new Float64Array(n - 1);
    for (let i = 1; i < n - 1; i++) this.outflow[i] = this.outflow[i - 1] + this.source[i] * this.spacing;
  }

  /** Mean and standard deviation of u given sensors of k, by `pairs` of opposite draws. */
  answer(sensors: Sensor[], pairs: number): Exact {
    const { law, points } = this, n = points.length, r = law.nodes.modes.columns;
    const seen = read([law], sensors.map((one) => ({ ...one, field: 0 })), r);
    const given = condition(seen.rows, seen.values, seen.variance.map(Math.sqrt));
    if (this.z.length < pairs * r) this.z = normals(this.seed, pairs * r);
    const half = pairs * r, both = matrix(2 * pairs, r);
    both.data.set(this.z.subarray(0, half));
    for (let i = 0; i < half; i++) both.data[half + i] = -this.z[i];
    const fields = timesTransposed(coordinates(given, both), law.nodes.modes);
    const sum = new Float64Array(n), squares = new Float64Array(n), u = new Float64Array(n);
    for (let i = 0; i < 2 * pairs; i++) {
      const k = fields.data.subarray(i * n, (i + 1) * n);
      for (let j = 0; j < n; j++) k[j] = Math.exp(k[j] + law.nodes.mean[j]);
      this.solve(k, u);
      for (let j = 0; j < n; j++) {
        sum[j] += u[j];
        squares[j] += u[j] * u[j];
      }
    }
    const mean = sum.map((v) => v / (2 * pairs));
    const std = squares.map((v, j) => Math.sqrt(Math.max(0, v / (2 * pairs) - mean[j] ** 2)));
    return { points, mean, std };
  }

  /** Solve -c (k u')' = f, zero at both ends (`uqsonet.solvers.elliptic1d`). */
  private solve(k: Float64Array, u: Float64Array): void {
    const n = k.length;
    let through = 0, all = 0;
    for (let i = 0; i < n - 1; i++) {
      const resistance = 2 / (k[i] + k[i + 1]);
      through += resistance * this.outflow[i];
      all += resistance;
    }
    const inflow = through / all, step = this.spacing / this.stored.coefficient;
    for (let i = 1; i < n - 1; i++)
      u[i] = u[i - 1] + (2 / (k[i - 1] + k[i])) * (inflow - this.outflow[i - 1]) * step;
  }
}
