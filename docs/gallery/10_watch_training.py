"""
Watching heads while a small GPT learns
=======================================

A GPT of two layers learns to write the sentences that come with the package, letter by letter. `heads.watch` looks at
its heads every fifty steps: how many queries are confident, how large margins are, and how close to max-margin.
"""

import torch
import transformers

from attsvm.heads import sample_texts, watch

letters = sorted(set("".join(sample_texts())))
numbers = [[letters.index(letter) for letter in text] for text in sample_texts() if len(text) >= 33]
generator = torch.Generator().manual_seed(0)

with torch.random.fork_rng():
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=len(letters), n_positions=32, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
        )
    )
print(f"{len(numbers)} sentences of {len(letters)} letters; {sum(p.numel() for p in model.parameters()):,} weights")


def batch(size: int) -> torch.Tensor:
    """Windows of the sentences."""
    chosen = torch.randint(len(numbers), (size,), generator=generator).tolist()
    starts = [int(torch.randint(len(numbers[k]) - 31, (1,), generator=generator)) for k in chosen]
    return torch.tensor([numbers[k][start : start + 32] for k, start in zip(chosen, starts, strict=True)])


# %%
# Training, watched
# -----------------
# In a plain loop the watch is called with the number of the step. A Trainer of the transformers library takes
# ``callbacks=[seen.callback()]``. With ``out="heads.parquet"`` every measurement would be written at once.

seen = watch(model, [ids[:32] for ids in numbers[:10]], every=50)
seen.measure(0)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses = []
for step in range(1, 301):
    inputs = batch(16)
    loss = model(input_ids=inputs, labels=inputs).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    seen(step)
print(f"loss {losses[0]:.2f} to {sum(losses[-20:]) / 20:.2f}")

# %%
# What the heads did
# ------------------

figure = seen.plot()
for row in seen.rows[-8:]:
    print(f"{row['head']}: {row['confident']:.0%} of queries confident, largest logit {row['largest_logit']:.1f}")
