// Elements with attributes and children in one call.
type Attributes = Record<string, string | number>;

function filled<T extends Element>(found: T, attributes: Attributes, children: (Node | string)[]): T {
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, String(value));
  found.append(...children);
  return found;
}

export const element = <K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: (Node | string)[]
) => filled(document.createElement(tag), attributes, children);

export const svg = <K extends keyof SVGElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: (Node | string)[]
) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** A number with a few significant digits, for people. */
export const number = (value: number, digits = 4) => plain(Number(value.toPrecision(digits)));

/** A number with all its digits; small and large ones have a power of ten. */
export function plain(value: number): string {
  const size = Math.abs(value);
  return value === 0 || (size >= 1e-3 && size < 1e8) ? String(value) : value.toExponential().replace("+", "");
}
