"""scaled_dot_product_attention: (N, H, L, D) queries over (N, H, S, D) keys and values."""
import numpy as np

from .case import Case, chance, normal

OP = "scaled_dot_product_attention"


def attention(name, n=1, h=2, rows=9, keys=None, d=4, key_heads=None, value_width=None, mask=None, second=False, **args):
    keys, key_heads = rows if keys is None else keys, key_heads or h
    case = Case(f"attention_{name}", second).data(
        q=(n, h, rows, d), k=(n, key_heads, keys, d), v=(n, key_heads, keys, value_width or d))
    if mask is not None:
        case.data(m=mask)
    given = {"is_causal": False, "scale": None, "enable_gqa": key_heads != h, **args}
    return case.step(OP, f"q k v {'m' if mask is not None else '-'}", "y", **given).returns("y")


def ring(case, cuts, n, key_heads, d, key_cuts=None):
    """Every rank's keys and values go once around: each block to all other ranks, and no more than that."""
    key_cuts = key_cuts or cuts
    most = 2 * n * key_heads * d * 4 * sum(key_cuts) * (len(cuts) - 1)
    return case.limit(most, {"q": [list(cuts)], "k": [list(key_cuts)], "v": [list(key_cuts)]}, mesh=(len(cuts),),
                      q="S2", k="S2", v="S2")


c = attention("self", n=2, rows=13, second=True)
for cuts in ((6, 7), (1, 12), (4, 5, 4), (13, 0), (3, 4, 1, 5)):
    ring(c, cuts, 2, 2, 4)
c.limit(0, {"q": [[6, 7]]}, q="S2", k="R", v="R")
c.limit(0, {t: [[1, 1]] for t in "qkv"}, q="S0", k="S0", v="S0")
c.limit(0, {t: [[1, 1]] for t in "qkv"}, q="S1", k="S1", v="S1")
c = attention("cross", rows=8, keys=13, scale=0.3, second=True)
ring(c, (3, 5), 1, 2, 4, key_cuts=(6, 7))
ring(c, (3, 5, 0), 1, 2, 4, key_cuts=(4, 1, 8))
attention("cross_few_keys", rows=11, keys=3)
attention("cross_one_key", rows=7, keys=1)
attention("one_row", rows=1, keys=10)
attention("one_row_one_key", rows=1, keys=1)
c = attention("causal", rows=13, second=True, is_causal=True)
ring(c, (6, 7), 1, 2, 4)
attention("causal_more_keys", rows=6, keys=11, is_causal=True)
attention("causal_more_rows", rows=11, keys=6, is_causal=True)
attention("causal_scale", rows=9, is_causal=True, scale=1.5)
c = attention("gqa", h=4, key_heads=2, rows=9, second=True)
ring(c, (4, 5), 1, 2, 4)
c.limit(0, {"q": [[2, 2]], "k": [[1, 1]], "v": [[1, 1]]}, q="S1", k="S1", v="S1")
attention("gqa_one_key_head", h=3, key_heads=1, rows=8, keys=10)
attention("gqa_causal", h=6, key_heads=2, rows=7, is_causal=True)
attention("gqa_flag_equal_heads", h=2, rows=7, enable_gqa=True)
attention("one_head", n=2, h=1, rows=9)
attention("width_one", h=2, rows=9, d=1, second=True)
attention("smallest", h=1, rows=3, d=1)
attention("value_width", h=2, rows=7, keys=9, d=4, value_width=3)
attention("three_heads", n=2, h=3, rows=10, d=5)
attention("scale_large", rows=9, scale=30.0)
attention("scale_zero", rows=7, scale=0.0)
attention("scale_negative", rows=7, scale=-0.7)

# BOOL masks of all shapes; `first` keeps at least one key for every row.
def some(probability, *sizes, first=True):
    def make(rng):
        keep = chance(probability, *sizes)(rng)
        keep[..., 0] |= first
        return keep
    return make


attention("mask_rows_keys", rows=9, keys=11, mask=some(0.5, 9, 11), second=True)
# A mask that every rank has, or that is cut by rows as the queries are, sends nothing beside the ring.
c = attention("mask_full", n=2, rows=7, keys=8, mask=some(0.5, 2, 2, 7, 8))
ring(c, (3, 4), 2, 2, 4, key_cuts=(3, 5))
c.limit(2 * 2 * 2 * 4 * 4 * 8, {"q": [[3, 4]], "k": [[3, 5]], "v": [[3, 5]], "m": [[3, 4]]}, q="S2", k="S2", v="S2", m="S2")
c.limit(0, {"q": [[3, 4]], "m": [[3, 4]]}, q="S2", m="S2").limit(0, {"m": [[3, 4]]}, m="S2")
c.limit(0, {"m": [[1, 1]]}, m="S0").limit(0, {"m": [[1, 1]]}, m="S1")
attention("mask_per_sample", n=2, rows=7, keys=8, mask=some(0.4, 2, 1, 1, 8))
attention("mask_per_head", rows=7, keys=8, mask=some(0.4, 1, 2, 7, 8))
attention("mask_one_column", rows=7, keys=8, mask=lambda rng: np.ones((7, 1), bool))
attention("mask_gqa", h=4, key_heads=2, rows=7, mask=some(0.5, 4, 7, 7))
attention("mask_window", rows=12, mask=lambda rng: np.abs(np.subtract.outer(np.arange(12), np.arange(12))) <= 2)
# Rows that may see nothing are zero, forward and backward.
attention("rows_without_keys", n=2, rows=8, keys=10, mask=lambda rng: np.logical_and(
    chance(0.5, 2, 1, 8, 10)(rng), (np.arange(8) % 3 != 1)[:, None]), second=True)
attention("no_keys_at_all_allowed", rows=5, keys=6, mask=lambda rng: np.zeros((5, 6), bool))
attention("keys_only_at_the_end", rows=6, keys=9, mask=lambda rng: np.broadcast_to(np.arange(9) >= 7, (6, 9)))
# Added masks, with their gradient.
attention("added", n=2, rows=7, keys=9, mask=normal(2, 2, 7, 9), second=True)
attention("added_rows_keys", n=2, rows=7, keys=9, mask=normal(7, 9)).limit(0, {"m": [[2, 5]]}, m="S0").limit(
    0, {"q": [[2, 5]], "m": [[2, 5]]}, q="S2", m="S0")
attention("added_per_head_column", rows=7, keys=9, mask=normal(1, 2, 1, 9))
attention("added_per_row", n=2, rows=7, keys=9, mask=normal(2, 1, 7, 1))
attention("added_gqa", h=4, key_heads=2, rows=6, keys=7, mask=normal(4, 6, 7))
attention("added_fixed", rows=7, keys=9, mask=normal(7, 9)).constant("m")


def minus_infinity(rng):
    added = normal(7, 9)(rng)
    added[np.asarray(chance(0.4, 7, 9)(rng))] = -np.inf
    added[:, 4] = 0.25
    added[2] = -np.inf
    return added


attention("added_minus_infinity", rows=7, keys=9, mask=minus_infinity).constant("m")

# Values with a column of exact zeros, equal keys, and huge scores.
c = attention("zero_column", rows=9)
c.tensors["v"][..., 2] = 0.0
c = attention("equal_keys", rows=9)
c.tensors["k"][...] = c.tensors["k"][..., :1, :]
c = attention("huge_scores", rows=8)
c.tensors["q"] *= 40
c = attention("zero_queries", rows=8, second=True)
c.tensors["q"][...] = 0.0

# Nothing there.
attention("no_samples", n=0, rows=5)
attention("no_rows", rows=0, keys=4)
attention("no_keys", rows=4, keys=0)

# The same tensor three times, and keys that are also values.
Case("attention_one_tensor", second=True).data(x=(1, 2, 8, 4)).step(
    OP, "x x x -", "y", is_causal=False, scale=None, enable_gqa=False).returns("y")
Case("attention_shared_keys_values").data(q=(1, 2, 6, 4), kv=(1, 2, 9, 4)).step(
    OP, "q kv kv -", "y", is_causal=False, scale=None, enable_gqa=False).returns("y")
