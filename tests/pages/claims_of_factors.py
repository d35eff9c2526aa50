"""What pages say of optimizers on K and Q: growth, decay, and the small transformer."""

from __future__ import annotations

from collections.abc import Iterator

from pages.reading import claims, results

PAGE = "docs/optimizers.md"


@claims(PAGE)
def growth_table() -> Iterator[str]:
    for row in results("factor_growth")["rows"]:
        passes = f"{row['tau_1000_within_10_percent']} of {row['tau_1000_passed']}"
        yield (
            f"| {row['optimizer']} | {row['steps']:,} | {row['within_5_percent_over_last_decade']} of"
            f" {row['data_sets']} | {row['in_the_end_median']:.3f}, least {row['in_the_end_least']:.3f} | {passes} |"
        )
        assert row["above_a_bound"] == 0 or row["optimizer"].startswith("Adam")
        assert row["not_solved"] == 0


@claims(PAGE)
def decay_table() -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for row in results("factor_decay")["rows"]:
        assert row["norm_off_most"] <= 1e-5 or row["optimizer"].startswith("sign")
        found.setdefault(row["optimizer"].partition(";")[0], []).append(f"{row['there']}, {row['gap_most']:.0e}")
    for name, cells in found.items():
        yield f"| {name} | {' | '.join(cells)} |"


@claims(PAGE)
def text_table() -> Iterator[str]:
    for row in results("logits_of_text")["rows"]:
        logits, keys = row["exponent_of_logits"], row["exponent_of_keys"]
        bound = "" if row["bound_of_logits"] is None else f"{row['bound_of_logits']:,.0f}"
        yield (
            f"| {row['run']} | {row['loss']:.2f} | {row['largest_logit']:.1f} | {bound} | {min(logits):.2f} to"
            f" {max(logits):.2f} | {min(keys):.2f} to {max(keys):.2f} |"
        )


@claims(PAGE)
def norms_table() -> Iterator[str]:
    for row in results("factors_geometry")["rows"]:
        yield (
            f"| {row['row']} | {row['framed']} | {row['framed_wins']} of {row['judged']} | {row['median']:.3f}, least"
            f" {row['least']:.3f} |"
        )
