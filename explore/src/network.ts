// What a branch adds to its linear map: a perceptron, or squared exponentials about centres.
import { add, dot, matrix, timesTransposed, transposed, unpack, type Packed, type Rows } from "./arrays";

interface StoredPerceptron {
  activation: string;
  layers: { weight: Packed; bias: Packed }[];
}

interface StoredKernel {
  kernel: { scale: Packed; centres: Packed; weights: Packed; rest: Packed };
}

export type StoredNetwork = StoredPerceptron | StoredKernel;

export interface Network {
  /** Map rows to rows; with directions (k, r), also their slopes, k times as many rows. */
  evaluate(x: Rows, directions?: Rows): { value: Rows; slopes: Rows | null };
}

export function network(stored: StoredNetwork): Network {
  return "kernel" in stored ? new Kernel(stored) : new Perceptron(stored);
}

interface Activation {
  value(x: number): number;
  slope(x: number): number;
}

/** The error function to 1.5e-7 (Abramowitz and Stegun, 7.1.26). */
function erf(x: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = t * (0.254829592 + t * (-0.284496736
    + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const normal = (x: number) => (1 + erf(x / Math.SQRT2)) / 2;

const ACTIVATIONS: Record<string, Activation> = {
  silu: {
    value: (x) => x / (1 + Math.exp(-x)),
    slope: (x) => sigmoid(x) * (1 + x * (1 - sigmoid(x))),
  },
  tanh: { value: Math.tanh, slope: (x) => 1 - Math.tanh(x) ** 2 },
  gelu: {
    value: (x) => x * normal(x),
    slope: (x) => normal(x) + (x * Math.exp(-x * x / 2)) / Math.sqrt(2 * Math.PI),
  },
};

class Perceptron implements Network {
  private readonly layers: { weight: Rows; bias: Float64Array }[];
  private readonly activation: Activation;

  constructor(stored: StoredPerceptron) {
    this.layers = stored.layers.map((l) => ({ weight: unpack(l.weight), bias: unpack(l.bias).data }));
    this.activation = ACTIVATIONS[stored.activation];
  }

  evaluate(x: Rows, directions?: Rows): { value: Rows; slopes: Rows | null } {
    let value = x, slopes = directions ?? null;
    const k = directions?.rows ?? 0, last = this.layers.length - 1;
    this.layers.forEach(({ weight, bias }, number) => {
      value = timesTransposed(value, weight);
      slopes = slopes && timesTransposed(slopes, weight);
      const n = value.rows, m = value.columns;
      if (number === 0 && slopes && last > 0) slopes = repeated(slopes, n);
      for (let i = 0; i < n; i++) {
        add(value.data, i * m, bias, 0, m, 1);
        if (number === last) continue;
        for (let c = i * m; c < (i + 1) * m; c++) {
          const before = value.data[c];
          value.data[c] = this.activation.value(before);
          if (!slopes) continue;
          const slope = this.activation.slope(before);
          for (let j = 0; j < k; j++) slopes.data[j * n * m + c] *= slope;
        }
      }
    });
    return { value, slopes };
  }
}

const apart = (square: number) => 1 / Math.sqrt(1 + Math.max(square, 0));

class Kernel implements Network {
  private readonly scale: Float64Array;
  private readonly centres: Rows;
  private readonly squares: Float64Array;
  private readonly weights: Rows; // (outputs, centres)

  constructor(stored: StoredKernel) {
    this.scale = unpack(stored.kernel.scale).data;
    this.centres = unpack(stored.kernel.centres);
    this.squares = squares(this.centres);
    const weights = unpack(stored.kernel.weights);
    add(weights.data, 0, unpack(stored.kernel.rest).data, 0, weights.data.length, 1);
    this.weights = transposed(weights);
  }

  evaluate(x: Rows, directions?: Rows): { value: Rows; slopes: Rows | null } {
    const scaled = this.scaled(x), length = squares(scaled);
    const near = timesTransposed(scaled, this.centres), n = near.rows, m = near.columns;
    for (let i = 0; i < n; i++)
      for (let c = 0; c < m; c++)
        near.data[i * m + c] = apart(length[i] + this.squares[c] - 2 * near.data[i * m + c]);
    const value = timesTransposed(near, this.weights);
    if (!directions) return { value, slopes: null };
    // Along d the slope of k = (1 + |x - c|^2)^-1/2 is k^3 times (c - x)'d.
    const d = this.scaled(directions), k = d.rows;
    const across = timesTransposed(d, this.centres), along = timesTransposed(d, scaled);
    const slopes = matrix(k * n, m);
    for (let j = 0; j < k; j++)
      for (let i = 0; i < n; i++)
        for (let c = 0; c < m; c++)
          slopes.data[(j * n + i) * m + c] =
            near.data[i * m + c] ** 3 * (across.data[j * m + c] - along.data[j * n + i]);
    return { value, slopes: timesTransposed(slopes, this.weights) };
  }

  private scaled(x: Rows): Rows {
    const found = matrix(x.rows, x.columns, x.data.slice());
    for (let i = 0; i < found.data.length; i++) found.data[i] *= this.scale[i % x.columns];
    return found;
  }
}

function squares(x: Rows): Float64Array {
  const each = (_: unknown, i: number) => dot(x.data, i * x.columns, x.data, i * x.columns, x.columns);
  return Float64Array.from({ length: x.rows }, each);
}

/** Each row n times: direction j of sample i becomes row j n + i. */
export function repeated(a: Rows, n: number): Rows {
  const found = matrix(a.rows * n, a.columns);
  for (let row = 0; row < found.rows; row++)
    add(found.data, row * a.columns, a.data, Math.floor(row / n) * a.columns, a.columns, 1);
  return found;
}
