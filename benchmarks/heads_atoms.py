"""Which reactant atom each product atom comes from, written by hand, and how often a head selects it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.heads import HeadModel, Sentence

# Reactions with one letter per atom, in the order of the atoms in the text. Atoms that are equivalent by symmetry (the
# two ortho carbons of a ring, the two oxygens of a nitro group) share a letter.
TRUTH = {
    "CC(=O)O.CCO>>CCOC(C)=O": "abcd.efg>>efgbac",
    "CCC(=O)O.CO>>CCC(=O)OC": "abcde.fg>>abcdgf",
    "O=C(O)c1ccccc1.CO>>COC(=O)c1ccccc1": "abcdefgfe.hi>>hibadefgfe",
    "CC(=O)Cl.Nc1ccccc1>>CC(=O)Nc1ccccc1": "abcd.efghihg>>abcefghihg",
    "O=C(Cl)c1ccccc1.NCc1ccccc1>>O=C(NCc1ccccc1)c1ccccc1": "abcdefgfe.hijklmlk>>abhijklmlkdefgfe",
    "CC(=O)OC(C)=O.Nc1ccc(O)cc1>>CC(=O)Nc1ccc(O)cc1": "abcdbac.efghijhg>>abcefghijhg",
    "CC(=O)Cl.CNC>>CC(=O)N(C)C": "abcd.efe>>abcfee",
    "O=C(O)c1ccccc1.NCc1ccccc1>>O=C(NCc1ccccc1)c1ccccc1": "abcdefgfe.hijklmlk>>abhijklmlkdefgfe",
    "O=C(O)C1CCCCC1.CN>>CNC(=O)C1CCCCC1": "abcdefgfe.hi>>hibadefgfe",
    "OB(O)c1ccccc1.COc1ccc(Br)cc1>>COc1ccc(-c2ccccc2)cc1": "abadefgfe.hijklmnlk>>hijklmdefgfelk",
    "Cc1ccc(B(O)O)cc1.Brc1ccncc1>>Cc1ccc(-c2ccncc2)cc1": "abcdefggdc.hijklkj>>abcdeijklkjdc",
    "CCBr.Oc1ccccc1>>CCOc1ccccc1": "abc.defghgf>>abdefghgf",
    "CI.Oc1ccc(C=O)cc1>>COc1ccc(C=O)cc1": "ab.cdefghife>>acdefghife",
    "ClCc1ccccc1.CNC>>CN(C)Cc1ccccc1": "abcdefed.ghg>>ghgbcdefed",
    "CC(=O)c1ccccc1>>CC(O)c1ccccc1": "abcdefgfe>>abcdefgfe",
    "O=Cc1ccccc1.NCc1ccccc1>>c1ccc(CNCc2ccccc2)cc1": "abcdefed.ghijklkj>>fedcbghijklkjde",
    "C[Mg]Br.O=Cc1ccccc1>>CC(O)c1ccccc1": "abc.defghihg>>aedfghihg",
    "CC(=O)Cl.COc1ccccc1>>COc1ccc(C(C)=O)cc1": "abcd.efghijih>>efghijbacih",
    "COC(=O)c1ccc(F)cc1>>O=C(O)c1ccc(F)cc1": "abcdefghigf>>dcbefghigf",
    "O=C=Nc1ccccc1.CCO>>CCOC(=O)Nc1ccccc1": "abcdefgfe.hij>>hijbacdefgfe",
}

_ATOM = re.compile(r"\[[^\]]+\]|Br|Cl|[BCNOSPFI]|[cnospb]")


@dataclass(frozen=True)
class AtomCheck:
    """How often a head, asked by a product atom, selects an atom of the reactants.

    Arguments:
        atoms: product atoms asked.
        right: share that selects the atom it comes from (or one that cannot be told from it).
        same_element: share that selects a reactant atom of the same element.
        chance: the share right if every reactant atom of the same element were as likely.
    """

    atoms: int
    right: float
    same_element: float
    chance: float


def reaction_checks(model: HeadModel) -> Iterator[tuple[int, Tensor, Tensor, float]]:
    """Ask every product atom of `TRUTH` for the reactant token with the largest attention, for every head.

    For each reaction: the atoms asked; how many are right, and how many of the same element, ``[layers, heads]``; how
    many would be right by chance.
    """
    for sentence, letters in zip(model.encode(list(TRUTH)), TRUTH.values(), strict=True):
        right = torch.zeros(model.layers, model.heads)
        same, chance = torch.zeros_like(right), 0.0
        reactants, products = atom_positions(sentence, letters)
        attention = model.states(sentence).attention
        arrow = sentence.tokens.index(">>")
        for position, letter in products:
            chosen = attention[:, :, position, :arrow].argmax(-1)
            alike = [
                place for place in reactants if sentence.tokens[place].upper() == sentence.tokens[position].upper()
            ]
            true = [place for place in alike if reactants[place] == letter]
            right += torch.isin(chosen, torch.tensor(true))
            same += torch.isin(chosen, torch.tensor(alike))
            chance += len(true) / len(alike)
        yield len(products), right, same, chance


def atom_checks(model: HeadModel) -> dict[str, AtomCheck]:
    """All reactions together, for every head."""
    counts, rights, sames, chances = zip(*reaction_checks(model), strict=True)
    atoms, right, same = sum(counts), sum(rights), sum(sames)
    return {
        f"L{layer}H{head}": AtomCheck(
            atoms, float(right[layer, head]) / atoms, float(same[layer, head]) / atoms, sum(chances) / atoms
        )
        for layer in range(model.layers)
        for head in range(model.heads)
    }


def atom_positions(sentence: Sentence, letters: str) -> tuple[dict[int, str], list[tuple[int, str]]]:
    """Letters by token position: of the reactants, and of the product in order."""
    arrow = sentence.tokens.index(">>")
    real = zip(sentence.tokens, sentence.special.tolist(), strict=True)
    places = [k for k, (token, special) in enumerate(real) if _ATOM.fullmatch(token) and not special]
    left, right = letters.replace(".", "").split(">>")
    before, after = [k for k in places if k < arrow], [k for k in places if k > arrow]
    if (len(before), len(after)) != (len(left), len(right)):
        found = f"{len(before)} and {len(after)} atoms"
        raise ValueError(f"{sentence.text}: {found}, letters for {len(left)} and {len(right)}")
    return dict(zip(before, left, strict=True)), list(zip(after, right, strict=True))
