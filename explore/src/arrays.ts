// Numbers out of the page, the normal draws that Python makes, and products of matrices.

/** A matrix of rows; `data` has rows * columns entries. */
export interface Rows {
  rows: number;
  columns: number;
  data: Float64Array;
}

export interface Packed {
  shape: number[];
  float32?: string;
  int16?: string;
  step?: string;
  tucker?: [string, string, string];
  axes?: [number, number];
  core?: [number, number, number];
}

export function matrix(rows: number, columns: number, data?: Float64Array): Rows {
  return { rows, columns, data: data ?? new Float64Array(rows * columns) };
}

/** Rows of a matrix, without a copy. */
export function slice(a: Rows, first: number, end: number): Rows {
  return matrix(end - first, a.columns, a.data.subarray(first * a.columns, end * a.columns));
}

function bytes(text: string): ArrayBuffer {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found.buffer;
}

const floats = (text: string) => Float64Array.from(new Float32Array(bytes(text)));

/** Undo `uqsonet.explore.packed`; a vector comes back as one column. */
export function unpack(packed: Packed): Rows {
  const [rows, columns = 1] = packed.shape;
  if (packed.float32 !== undefined) return matrix(rows, columns, floats(packed.float32));
  if (packed.int16 !== undefined && packed.step !== undefined) {
    const step = floats(packed.step);
    const found = Float64Array.from(new Int16Array(bytes(packed.int16)));
    for (let i = 0; i < found.length; i++) found[i] *= step[i % columns];
    return matrix(rows, columns, found);
  }
  const [core, left, right] = packed.tucker!.map(floats);
  const [n1, n2] = packed.axes!;
  const [k1, k2, k] = packed.core!;
  const half = new Float64Array(n1 * k2 * k);
  for (let i = 0; i < n1; i++)
    for (let a = 0; a < k1; a++)
      add(half, i * k2 * k, core, a * k2 * k, k2 * k, left[i * k1 + a]);
  const found = new Float64Array(n1 * n2 * k);
  for (let i = 0; i < n1; i++)
    for (let j = 0; j < n2; j++)
      for (let b = 0; b < k2; b++)
        add(found, (i * n2 + j) * k, half, (i * k2 + b) * k, k, right[j * k2 + b]);
  return matrix(rows, columns, found);
}

/** y[at...] += factor * x[from...], `count` entries. */
export function add(
  y: Float64Array, at: number, x: Float64Array, from: number, count: number, factor: number,
): void {
  for (let i = 0; i < count; i++) y[at + i] += factor * x[from + i];
}

export function dot(x: Float64Array, at: number, y: Float64Array, from: number, count: number): number {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += x[at + i] * y[from + i];
  return sum;
}

/** a bᵀ, four by two rows at a time: so many sums fit into registers. */
export function timesTransposed(a: Rows, b: Rows): Rows {
  const { rows: n, columns: k, data: x } = a;
  const { rows: m, data: y } = b;
  const found = matrix(n, m);
  const z = found.data;
  let i = 0;
  for (; i + 4 <= n; i += 4) {
    const a0 = i * k, a1 = a0 + k, a2 = a1 + k, a3 = a2 + k;
    let j = 0;
    for (; j + 2 <= m; j += 2) {
      const b0 = j * k, b1 = b0 + k;
      let s00 = 0, s01 = 0, s10 = 0, s11 = 0, s20 = 0, s21 = 0, s30 = 0, s31 = 0;
      for (let l = 0; l < k; l++) {
        const u = y[b0 + l], v = y[b1 + l];
        const p = x[a0 + l], q = x[a1 + l], r = x[a2 + l], s = x[a3 + l];
        s00 += p * u; s01 += p * v; s10 += q * u; s11 += q * v;
        s20 += r * u; s21 += r * v; s30 += s * u; s31 += s * v;
      }
      const at = i * m + j;
      z[at] = s00; z[at + 1] = s01; z[at + m] = s10; z[at + m + 1] = s11;
      z[at + 2 * m] = s20; z[at + 2 * m + 1] = s21; z[at + 3 * m] = s30; z[at + 3 * m + 1] = s31;
    }
    for (; j < m; j++) {
      const b0 = j * k, at = i * m + j;
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (let l = 0; l < k; l++) {
        const u = y[b0 + l];
        s0 += x[a0 + l] * u; s1 += x[a1 + l] * u; s2 += x[a2 + l] * u; s3 += x[a3 + l] * u;
      }
      z[at] = s0; z[at + m] = s1; z[at + 2 * m] = s2; z[at + 3 * m] = s3;
    }
  }
  for (; i < n; i++) for (let j = 0; j < m; j++) z[i * m + j] = dot(x, i * k, y, j * k, k);
  return found;
}

export function transposed(a: Rows): Rows {
  const found = matrix(a.columns, a.rows);
  for (let i = 0; i < a.rows; i++)
    for (let j = 0; j < a.columns; j++) found.data[j * a.rows + i] = a.data[i * a.columns + j];
  return found;
}

export const times = (a: Rows, b: Rows) => timesTransposed(a, transposed(b));

/** a x for a vector x. */
export const apply = (a: Rows, x: Float64Array) => timesTransposed(a, matrix(1, x.length, x)).data;

/** Rows of `a` and of `b` below each other. */
export function stacked(a: Rows, b: Rows): Rows {
  const found = matrix(a.rows + b.rows, a.columns || b.columns);
  found.data.set(a.data);
  found.data.set(b.data, a.data.length);
  return found;
}

/** The lower root of a positive definite matrix. */
export function cholesky(a: Rows): Rows {
  const n = a.rows, found = matrix(n, n), l = found.data;
  for (let i = 0; i < n; i++)
    for (let j = 0; j <= i; j++) {
      const sum = a.data[i * n + j] - dot(l, i * n, l, j * n, j);
      l[i * n + j] = i === j ? Math.sqrt(Math.max(sum, 1e-300)) : sum / l[j * n + j];
    }
  return found;
}

/** Solve l x = b, or lᵀ x = b, for each of the columns of b. */
export function solveLower(l: Rows, b: Rows, across = false): Rows {
  const n = l.rows, k = b.columns, x = matrix(n, k, b.data.slice());
  for (let step = 0; step < n; step++) {
    const i = across ? n - 1 - step : step;
    for (let j = across ? i + 1 : 0; j < (across ? n : i); j++)
      add(x.data, i * k, x.data, j * k, k, -(across ? l.data[j * n + i] : l.data[i * n + j]));
    for (let c = 0; c < k; c++) x.data[i * k + c] /= l.data[i * n + i];
  }
  return x;
}

/** Normal numbers as `torch.randn` draws them: Mersenne twister, Box and Muller by blocks of 16. */
export function normals(seed: number, count: number): Float64Array {
  const whole = Math.ceil(count / 16) * 16;
  const word = twister(seed);
  const found = new Float64Array(whole);
  for (let i = 0; i < whole; i++) found[i] = (word() & 0xffffff) / 16777216;
  for (let i = 0; i < whole; i += 16)
    for (let j = i; j < i + 8; j++) {
      const radius = Math.sqrt(-2 * Math.log(1 - found[j]));
      const angle = 2 * Math.PI * found[j + 8];
      found[j] = radius * Math.cos(angle);
      found[j + 8] = radius * Math.sin(angle);
    }
  return found.subarray(0, count);
}

/** Scrambled Sobol points of torch: numbers of its directions, and the first point. */
export interface Sobol {
  directions: number[][];
  first: number[];
}

/** Evenly spread normal numbers (`uqsonet.gauss.given.even_normals`), a point in each row. */
export function evenNormals(sobol: Sobol, count: number): Rows {
  const r = sobol.first.length, found = matrix(count, r), now = Int32Array.from(sobol.first);
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < r; j++)
      found.data[i * r + j] = normalQuantile(Math.max(now[j] / 2 ** 30, 2 ** -32));
    let bit = 0; // the lowest that is zero says which directions come next
    while ((i >>> bit) & 1) bit++;
    for (let j = 0; j < r; j++) now[j] ^= sobol.directions[j][bit];
  }
  return found;
}

/** Horner's scheme, the highest power first. */
const polynomial = (x: number, c: number[]) => c.reduce((sum, one) => sum * x + one, 0);

/** The normal quantile (Wichura, Appl. Statist. 37, 1988, algorithm AS 241), from e^-25 on. */
function normalQuantile(p: number): number {
  const q = p - 0.5;
  if (Math.abs(q) <= 0.425) {
    const r = 0.180625 - q * q;
    return q * polynomial(r, [
      2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
      13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608,
    ]) / polynomial(r, [
      5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
      5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1,
    ]);
  }
  const r = Math.sqrt(-Math.log(Math.min(p, 1 - p)));
  const found = polynomial(r - 1.6, [
    7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177,
    1.27045825245236838258, 3.64784832476320460504, 5.7694972214606914055,
    4.6303378461565452959, 1.42343711074968357734,
  ]) / polynomial(r - 1.6, [
    1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966,
    0.14810397642748007459, 0.68976733498510000455, 1.6763848301838038494,
    2.05319162663775882187, 1,
  ]);
  return q < 0 ? -found : found;
}

function twister(seed: number): () => number {
  const state = new Uint32Array(624);
  state[0] = seed;
  for (let i = 1; i < 624; i++)
    state[i] = Math.imul(1812433253, state[i - 1] ^ (state[i - 1] >>> 30)) + i;
  let next = 624;
  return () => {
    if (next === 624) {
      for (let i = 0; i < 624; i++) {
        const y = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7fffffff);
        state[i] = state[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      next = 0;
    }
    let y = state[next++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  };
}
