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

export function percent(share) {
  if (typeof share !== "number" || !Number.isFinite(share)) return "–";
  if (share >= 1) return "100 %";
  if (share > 0.9995) return "> 99.9 %";
  if (share < 0.0005) return "< 0.1 %"; // softmax is never zero, even where its number is
  return `${(100 * share).toFixed(share > 0.995 || share < 0.005 ? 1 : 0)} %`;
}

export function point(x, digits = 2) {
  return `(${decimal(x[0], digits)}, ${decimal(x[1], digits)})`;
}

/** Numbers with a thin space every three digits. */
export function grouped(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

export function lowered(index) {
  return [...String(index)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[Number(digit)]).join("");
}
