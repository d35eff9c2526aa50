"""Sounds like speech, made of nothing but numbers: a buzz or a hiss, shaped by the resonances of a mouth.

A voice is a train of pulses with a pitch that falls; a vowel sends it through three resonators at the formants of that
vowel (Peterson and Barney, 1952, men), a fricative sends noise through one, a stop is a silence and a burst. Syllables,
their pitch and their lengths are drawn, so that every generator gives another utterance.
"""

from __future__ import annotations

import numpy
from numpy.typing import NDArray
from scipy.signal import lfilter

RATE = 16_000  # samples per second
VOWELS = {
    "i": (270, 2290, 3010), "I": (390, 1990, 2550), "E": (530, 1840, 2480), "a": (660, 1720, 2410),
    "A": (730, 1090, 2440), "O": (570, 840, 2410), "U": (440, 1020, 2240), "u": (300, 870, 2240),
    "V": (640, 1190, 2390), "R": (490, 1350, 1690),
}  # fmt: skip
FRICATIVES = {"s": 6000, "S": 3500, "f": 7000, "h": 1500}
STOPS = {"p": 800, "t": 4000, "k": 2000}
Sound = NDArray[numpy.float64]


def _resonance(sound: Sound, frequency: float, width: float) -> Sound:
    """Two poles at `frequency`, as wide as `width` (both in Hz), with gain 1 at frequency 0."""
    radius = numpy.exp(-numpy.pi * width / RATE)
    poles = [1.0, -2 * radius * numpy.cos(2 * numpy.pi * frequency / RATE), radius**2]
    filtered: Sound = lfilter([sum(poles)], poles, sound)
    return filtered


def _vowel(name: str, seconds: float, pitch: float, random: numpy.random.Generator) -> Sound:
    length = int(seconds * RATE)
    falling = pitch * (1 - 0.15 * numpy.linspace(0, 1, length)) * (1 + 0.01 * random.standard_normal())
    phase = numpy.cumsum(falling) / RATE
    pulses = numpy.diff(numpy.floor(phase), prepend=0.0)
    sound = lfilter([1.0], [1.0, -0.95], pulses) + 0.002 * random.standard_normal(length)
    for formant, width in zip(VOWELS[name], (60, 90, 150), strict=True):
        sound = _resonance(sound, formant, width)
    edge = numpy.minimum(1, numpy.minimum(numpy.arange(length), numpy.arange(length)[::-1]) / (0.02 * RATE))
    return sound * edge / max(1e-9, float(numpy.abs(sound).max()))


def _noise(frequency: float, seconds: float, size: float, random: numpy.random.Generator) -> Sound:
    sound = _resonance(random.standard_normal(int(seconds * RATE)), frequency, 900)
    sound *= numpy.hanning(len(sound))
    return size * sound / float(numpy.abs(sound).max())


def utterance(seed: int) -> Sound:
    """Two to ten seconds of drawn syllables, the largest value 0.5."""
    random = numpy.random.default_rng(seed)
    pitch = random.uniform(95, 220)
    parts: list[Sound] = []
    for _ in range(int(random.integers(10, 40))):
        kind = random.choice(["fricative", "stop", "none"], p=[0.3, 0.45, 0.25])
        if kind == "fricative":
            name = str(random.choice(list(FRICATIVES)))
            parts.append(_noise(FRICATIVES[name], random.uniform(0.06, 0.14), 0.25, random))
        elif kind == "stop":
            name = str(random.choice(list(STOPS)))
            parts += [numpy.zeros(int(0.04 * RATE)), _noise(STOPS[name], 0.02, 0.5, random)]
        vowel = str(random.choice(list(VOWELS)))
        parts.append(_vowel(vowel, random.uniform(0.07, 0.25), pitch * random.uniform(0.85, 1.2), random))
        if random.random() < 0.15:
            parts.append(numpy.zeros(int(random.uniform(0.1, 0.3) * RATE)))
    sound = numpy.concatenate(parts)
    return 0.5 * sound / float(numpy.abs(sound).max())
