"""Write the text that comes with `attsvm next-token`: short stories of a village, invented for this package.

    python -m benchmarks.village

draws them from the small grammar below with a fixed seed and writes `src/attsvm/next_token/village.txt`. Few words,
often repeated: a layer that can only point at words of its window finds much to point at.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

TARGET = Path(__file__).parent.parent / "src/attsvm/next_token/village.txt"
WORDS = 10_000
SEED = 2024

PEOPLE = {
    "Ada": "she", "Ben": "he", "Clara": "she", "Dan": "he", "Ella": "she", "Finn": "he", "Greta": "she", "Hugo": "he",
    "Ida": "she", "Jonas": "he",
}  # fmt: skip
WORK = ("baker", "miller", "teacher", "gardener", "fisher", "carpenter")
PLACES = ("mill", "well", "bridge", "garden", "market", "school", "barn", "river", "orchard", "church")
THINGS = ("key", "lamp", "basket", "kite", "book", "hat", "rope", "letter", "bell", "drum", "coat", "boat")
FOOD = ("bread", "honey", "milk", "cheese", "soup", "butter", "jam")
ANIMALS = ("goat", "dog", "cat", "hen", "horse", "goose", "donkey")
HOMES = ("barn", "garden", "orchard", "mill", "school")
WEATHER = ("rain", "wind", "snow", "fog", "storm")
COLOURS = ("red", "green", "blue", "yellow", "new", "small")


class Teller:
    """Draws the words of one story, each different from those of its kind that came before."""

    def __init__(self, stream: np.random.Generator) -> None:
        self.stream = stream
        self.people = [str(name) for name in stream.permutation(list(PEOPLE))]
        self.places = [str(name) for name in stream.permutation(PLACES)]

    def one(self, kind: tuple[str, ...]) -> str:
        """Any word of its kind."""
        return str(self.stream.choice(kind))

    def person(self) -> tuple[str, str]:
        """A name and its pronoun."""
        name = self.people.pop()
        return name, PEOPLE[name]

    def place(self) -> str:
        """A place."""
        return self.places.pop()


def lost(teller: Teller) -> list[str]:
    """Something is lost and found."""
    (who, they), (friend, _) = teller.person(), teller.person()
    thing, colour = teller.one(THINGS), teller.one(COLOURS)
    told = [f"{who} had a {colour} {thing}", f"one day {who} lost the {thing}"]
    for _ in range(int(teller.stream.integers(2, 4))):
        place = teller.place()
        told += [f"{who} looked for the {thing} at the {place}", f"the {thing} was not at the {place}"]
    place = teller.place()
    told += [
        f"then {who} met {friend} at the {place}",
        f"{friend} had found the {thing}",
        f"{friend} gave the {colour} {thing} to {who}",
        f"{who} took the {thing} and {they} went home with {friend}",
    ]
    return told


def meal(teller: Teller) -> list[str]:
    """A guest eats."""
    (who, they), (guest, _) = teller.person(), teller.person()
    food, other, work, place = teller.one(FOOD), teller.one(FOOD), teller.one(WORK), teller.place()
    return [
        f"{who} the {work} made {food}",
        f"{guest} came to {who} and asked for {food}",
        f"{who} gave {food} to {guest}",
        f"{guest} ate the {food} at the {place}",
        f"the {food} was good and {guest} asked for more {food}",
        f"{who} had no more {food} but {they} had {other}",
        f"so {who} and {guest} ate {other} at the {place}",
        f"{guest} said that the {other} was good but the {food} was better",
    ]


def animal(teller: Teller) -> list[str]:
    """An animal runs away."""
    (who, _), (friend, _) = teller.person(), teller.person()
    beast, place, away = teller.one(ANIMALS), teller.one(HOMES), teller.place()
    weather = teller.one(WEATHER)
    return [
        f"{who} had a {beast} and the {beast} lived in the {place}",
        f"one day the {weather} came and the {beast} ran away",
        f"{who} called the {beast} but the {beast} did not come",
        f"{who} asked {friend} and {friend} had seen the {beast} at the {away}",
        f"{who} and {friend} went to the {away}",
        f"the {beast} was at the {away} and {who} took the {beast} home",
        f"the {beast} slept in the {place} and the {weather} went away",
    ]


def trade(teller: Teller) -> list[str]:
    """Two things change hands."""
    (who, _), (other, _) = teller.person(), teller.person()
    mine, yours = (str(each) for each in teller.stream.permutation(THINGS)[:2])
    place, work = teller.place(), teller.one(WORK)
    return [
        f"{who} had a {mine} and {other} had a {yours}",
        f"{who} liked the {yours} and {other} liked the {mine}",
        f"they met at the {place}",
        f"{who} gave the {mine} to {other}",
        f"{other} gave the {yours} to {who}",
        f"then the {work} came to the {place} and liked the {mine}",
        f"{other} gave the {mine} to the {work}",
        f"so the {work} had the {mine} and {who} had the {yours} and {other} had a friend",
    ]


def journey(teller: Teller) -> list[str]:
    """A way there and back."""
    (who, _), (friend, _) = teller.person(), teller.person()
    first, second, third = teller.place(), teller.place(), teller.place()
    weather, thing = teller.one(WEATHER), teller.one(THINGS)
    return [
        f"{who} and {friend} went from the {first} to the {second}",
        f"at the {second} they saw the {weather}",
        f"{friend} did not like the {weather} and went back to the {first}",
        f"{who} went on from the {second} to the {third}",
        f"at the {third} {who} found a {thing}",
        f"{who} took the {thing} back to the {second} and from the {second} to the {first}",
        f"{friend} was at the {first} and {who} gave the {thing} to {friend}",
    ]


def tale(stream: np.random.Generator) -> str:
    """One story, sentence by sentence."""
    kind = (lost, meal, animal, trade, journey)[int(stream.integers(5))]
    sentences = kind(Teller(stream))
    return " ".join(f"{each[0].upper()}{each[1:]}." for each in sentences)


def village() -> str:
    """All stories, with a heading that says where they come from."""
    stream = np.random.default_rng(SEED)
    stories, count = [], 0
    while count < WORDS:
        stories.append(tale(stream))
        count += len(stories[-1].split())
    heading = (
        f"# {len(stories)} short stories of a village, {count:,} words, invented for attsvm: drawn from a small\n"
        "# grammar with a fixed seed (benchmarks/village.py). Lines that begin with # are no part of the text.\n"
    )
    return heading + "\n" + "\n\n".join(stories) + "\n"


if __name__ == "__main__":
    TARGET.write_text(village(), encoding="utf-8")
