/** Numbers as people read them: a true minus sign, no more digits than they carry, never NaN. */

export function decimal(value, digits = 2) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  const text = value.toFixed(digits);
  const plain = Number(text) === 0 ? text.replace("-", "") : text;
  return plain.replace("-", "−");
}

export function significant(value, digits = 3) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return scientific(value, digits - 1);
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

export function raised(exponent) {
  return [...String(exponent)].map((letter) => RAISED[letter]).join("");
}

export function scientific(value, digits = 1) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const [mantissa, exponent] = value.toExponential(digits).split("e");
  return `${mantissa.replace("-", "−")} · 10${raised(Number(exponent))}`;
}

/** A share of attention. Softmax is never 0 and never 1, even where its number is rounded to it. */
export function percent(share) {
  if (typeof share !== "number" || !Number.isFinite(share)) return "–";
  if (share > 0.9995) return "> 99.9 %";
  if (share < 0.0005) return "< 0.1 %";
  return `${(100 * share).toFixed(share > 0.995 || share < 0.005 ? 1 : 0)} %`;
}

/** A coordinate, as fields and sentences show it: at most four decimals, or four digits where it is tiny. */
export function coordinate(value) {
  const short = Math.abs(value) < 1e-3 ? value.toPrecision(4) : value.toFixed(4);
  return String(value).length > 8 ? String(Number(short)) : String(value);
}

export function point(x) {
  return `(${x.map((entry) => coordinate(entry).replace("-", "−")).join(", ")})`;
}

/** Something that climbs to 1, with enough digits to see it climb: 0.97, 0.9991, 0.999987; never rounded up to 1. */
export function nearOne(value) {
  const missing = 1 - value;
  if (missing < 1e-12) return "1";
  const digits = Math.min(9, Math.max(3, Math.ceil(-Math.log10(missing)) + 1));
  const factor = 10 ** digits;
  const cut = Math.floor(value * factor + 1e-9) / factor;
  return cut.toFixed(digits).replace("-", "−");
}

/** The angle whose cosine is given, in degrees. */
export function angle(cosine) {
  const degrees = (Math.acos(Math.min(1, Math.max(-1, cosine))) * 180) / Math.PI;
  return degrees < 0.05 ? "less than 0.1°" : `${decimal(degrees, 1)}°`;
}

/** Numbers with a thin space every three digits. */
export function grouped(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function lowered(index) {
  return [...String(index)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[Number(digit)]).join("");
}
