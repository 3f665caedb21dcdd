// The branch: a linear map, and a perceptron on top of it.
import { add, matrix, timesTransposed, unpack, type Packed, type Rows } from "./arrays";

export interface StoredNetwork {
  activation: string;
  layers: { weight: Packed; bias: Packed }[];
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

export class Network {
  private readonly layers: { weight: Rows; bias: Float64Array }[];
  private readonly activation: Activation;

  constructor(stored: StoredNetwork) {
    this.layers = stored.layers.map((l) => ({ weight: unpack(l.weight), bias: unpack(l.bias).data }));
    this.activation = ACTIVATIONS[stored.activation];
  }

  /** Map rows to rows; with directions (k, r), also their slopes, k times as many rows. */
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

/** Each row n times: direction j of sample i becomes row j n + i. */
export function repeated(a: Rows, n: number): Rows {
  const found = matrix(a.rows * n, a.columns);
  for (let row = 0; row < found.rows; row++)
    add(found.data, row * a.columns, a.data, Math.floor(row / n) * a.columns, a.columns, 1);
  return found;
}
