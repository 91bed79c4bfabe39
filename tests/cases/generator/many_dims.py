"""Tensors of seven and eight dims, as many as there may be: what works with statistics, rows or pieces must not need one more."""
from .case import Case, normal, single
from .indexing import numbers

SHAPES = {"7d": (2, 3, 2, 1, 2, 2, 3), "8d": (2, 2, 3, 1, 2, 1, 2, 3)}
REDUCTIONS = {"var": {"correction": 0}, "std": {"correction": 0}, "norm": {"p": 2}, "logsumexp": {}, "sum": {}, "amax": {}}

for name, sizes in SHAPES.items():
    for op, args in REDUCTIONS.items():
        for rows, dims in (("two", [0, -1]), ("all", None)):
            if op == "logsumexp" and dims is None:
                continue
            single(f"{op}_{name}_{rows}", op, {"x": sizes}, args={"dim": dims, "keepdim": rows == "two", **args}, second=op not in ("sum", "amax"))
    single(f"prod_{name}", "prod", {"x": sizes}, args={"dim": [1], "keepdim": False}, second=True)
    single(f"argmax_{name}", "argmax", {"x": sizes}, args={"dim": -1, "keepdim": False})
    for op in ("softmax", "log_softmax"):
        single(f"{op}_{name}", op, {"x": sizes}, args={"dim": 2}, second=True)
    for op in ("layer_norm", "rms_norm"):
        affine = ("w", "b") if op == "layer_norm" else ("w",)
        Case(f"{op}_{name}", second=True).data(x=normal(*sizes)).param(**{p: normal(*sizes[-2:]) for p in affine}).step(
            op, " ".join(("x", *affine)), "y", normalized_shape=list(sizes[-2:]), eps=1e-2).returns("y")
    Case(f"group_norm_{name}").data(x=normal(2, 4, *sizes[2:])).param(w=normal(4), b=normal(4)).step(
        "group_norm", "x w b", "y", num_groups=2, eps=1e-2).returns("y")
    Case(f"cross_entropy_{name}", second=True).data(x=normal(*sizes), y=numbers(sizes[1], sizes[0], *sizes[2:])).step(
        "cross_entropy", "x y", "z", reduction="mean").returns("z")
    single(f"repeat_interleave_{name}", "repeat_interleave", {"x": sizes}, args={"repeats": 2, "dim": 1})
    single(f"repeat_interleave_{name}_last", "repeat_interleave", {"x": sizes}, args={"repeats": 3, "dim": -1})
    single(f"sort_{name}", "sort", {"x": sizes}, outs="v i", args={"dim": 2, "descending": False})
    letters = "abcdefgh"[:len(sizes)]
    single(f"einsum_{name}", "einsum", {"x": sizes, "y": (sizes[2], 4)}, args={"equation": f"{letters},cz->{letters.replace('c', 'z')}"})
