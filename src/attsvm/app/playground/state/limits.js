/** What the page accepts: enough for every experiment in the plane, small enough to stay quick. */
export const LIMITS = {
  inputs: 8,
  tokens: 12,
  steps: 20000,
  companions: 12,
  coordinate: 1000,
  score: 1000,
  stepSize: 100,
  text: 200000,
  seed: 999999,
  file: 1000000,
  typed: 4000,
  window: 16,
};

export const TRAINED_CHOICES = ["p", "W", "KQ"];
export const OPTIMIZER_CHOICES = ["normalized", "gradient", "sign", "spectral", "naive"];
export const LOSS_CHOICES = ["logistic", "exponential", "linear"];
export const SHOWN_LAYERS = ["paths", "rays", "lines", "basin", "fresh"];
export const RANDOM_LABELS = ["told", "free"];
