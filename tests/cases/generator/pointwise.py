"""Element-wise operations: one operand, then two or three with every way of broadcasting."""
import numpy as np

from .case import Case, chance, few_integers, few_values, normal, single, uniform

SMOOTH = "silu sigmoid tanh exp square sin cos erf softplus".split()
POSITIVE = "log sqrt rsqrt reciprocal".split()
KINKED = "relu abs neg".split()


def silent(case, *cuts, dim=1):
    """Cut along this dim, the forward pass sends nothing, whatever the operand."""
    names = list(case.tensors)
    return case.limit(0, {n: [list(cuts)] for n in names}, mesh=(len(cuts),), **{n: f"S{dim}" for n in names})


for op in SMOOTH:
    silent(single(f"unary_{op}", op, {"x": (2, 3, 7, 4)}, second=True), 1, 5, 1, dim=2)
for op in POSITIVE:
    silent(single(f"unary_{op}", op, {"x": uniform(0.4, 3.0, 3, 10, 4)}, second=True), 4, 6)
single("unary_reciprocal_negative", "reciprocal", {"x": uniform(-3.0, -0.5, 9, 5)})
for op in KINKED:
    silent(single(f"unary_{op}", op, {"x": (2, 3, 7, 4)}), 3, 4, dim=2)
for approximate in ("none", "tanh"):
    silent(single(f"unary_gelu_{approximate}", "gelu", {"x": normal(2, 9, 7, scale=2)}, args={"approximate": approximate},
                  second=True), 2, 7)
silent(single("unary_leaky_relu", "leaky_relu", {"x": (3, 8, 5)}, args={"negative_slope": 0.2}), 7, 1)
silent(single("unary_elu", "elu", {"x": (3, 8, 5)}, args={"alpha": 0.7}, second=True), 3, 5)
for name, lo, hi in (("both", -0.6, 0.8), ("below", -0.3, None), ("above", None, 0.4)):
    silent(single(f"unary_clamp_{name}", "clamp", {"x": (3, 8, 5)}, args={"min": lo, "max": hi}), 0, 8)
for name, exponent in (("fraction", 2.3), ("half", 0.5), ("minus_two", -2.0)):
    silent(single(f"unary_pow_{name}", "pow_scalar", {"x": uniform(0.3, 2.5, 3, 9)}, args={"exponent": exponent}, second=True), 4, 5)
single("unary_pow_cube_signed", "pow_scalar", {"x": (4, 9)}, args={"exponent": 3.0}, second=True)
for name, exponent in (("zero", 0.0), ("one", 1.0), ("two", 2.0)):
    single(f"unary_pow_{name}", "pow_scalar", {"x": few_values(3, 4, 5)}, args={"exponent": exponent})

# Exactly at the kinks, where the gradient is a convention.
KINKS = np.array([[-1.0, -0.5, 0.0, 0.5], [1.0, -0.0, 2.0, -2.0], [0.0, 0.5, 0.0, -0.5]])
for op, args in (("relu", {}), ("abs", {}), ("clamp", {"min": -0.5, "max": 0.5}),
                 ("leaky_relu", {"negative_slope": 0.1}), ("elu", {"alpha": 1.5})):
    single(f"kink_{op}", op, {"x": KINKS}, args=args)
# Far out, where a careless formula overflows.
FAR = np.array([-120.0, -60.0, -25.0, -20.5, -12.0, -1e-4, 1e-4, 9.0, 19.9, 20.5, 60.0, 120.0])
for op, args in (("sigmoid", {}), ("tanh", {}), ("silu", {}), ("softplus", {}), ("erf", {}),
                 ("gelu", {"approximate": "none"}), ("gelu", {"approximate": "tanh"}), ("elu", {"alpha": 1.0})):
    single(f"far_{op}{'_tanh' if args.get('approximate') == 'tanh' else ''}", op, {"x": FAR}, args=args)

# Sizes that are easily forgotten.
single("size_scalar_tanh", "tanh", {"x": ()}, second=True)
single("size_scalar_mul", "mul", {"a": (), "b": ()}, second=True)
single("size_zero_gelu", "gelu", {"x": (3, 0, 4)}, args={"approximate": "none"})
single("size_zero_add", "add", {"a": (0, 5), "b": (1, 5)})
single("size_zero_mul_vector", "mul", {"a": (0,), "b": (1,)})
single("size_one_exp", "exp", {"x": (1, 1, 1)})
single("size_vector_sub", "sub", {"a": (13,), "b": ()})

# Two operands, one shape.
for op in "add sub mul".split():
    single(f"binary_{op}", op, {"a": (2, 7, 5), "b": (2, 7, 5)}, second=op == "mul").limit(
        0, {"a": [[3, 4]], "b": [[3, 4]]}, a="S1", b="S1")
silent(single("binary_div", "div", {"a": (2, 7, 5), "b": uniform(0.5, 2.0, 2, 7, 5)}, second=True), 3, 4)
for op in ("maximum", "minimum"):
    silent(single(f"binary_{op}", op, {"a": (2, 7, 5), "b": (2, 7, 5)}), 2, 4, 1)
    single(f"binary_{op}_ties", op, {"a": few_values(3, 4, 7), "b": few_values(3, 4, 7)})

# Broadcasting: leading dims missing, size-1 dims on either side or on both, 0-dim, outer products.
SHAPES = {
    "leading": ((2, 3, 7, 5), (7, 5)), "leading_left": ((5,), (3, 7, 5)), "middle_one": ((2, 7, 5), (2, 1, 5)),
    "last_one": ((2, 7, 5), (2, 7, 1)), "first_one": ((1, 7, 5), (4, 7, 5)), "both_ways": ((3, 1, 5), (1, 7, 1)),
    "scalar_right": ((3, 7), ()), "scalar_left": ((), (3, 7)), "all_ones": ((4, 6), (1, 1)), "outer": ((9, 1), (1, 7)),
    "rank_and_ones": ((7, 1), (2, 3, 1, 5)),
}
for shape_name, (left, right) in SHAPES.items():
    for op in ("add", "mul"):
        single(f"broadcast_{op}_{shape_name}", op, {"a": left, "b": right}, second=op == "mul")
for shape_name in ("leading", "both_ways", "scalar_left", "middle_one"):
    left, right = SHAPES[shape_name]
    single(f"broadcast_sub_{shape_name}", "sub", {"a": left, "b": right})
    single(f"broadcast_div_{shape_name}", "div", {"a": left, "b": uniform(0.5, 2, *right)}, second=True)
    single(f"broadcast_maximum_{shape_name}", "maximum", {"a": few_values(4, *left), "b": few_values(4, *right)})
single("broadcast_minimum_outer", "minimum", {"a": (9, 1), "b": (1, 7)})
single("broadcast_channel_parameter", "mul", {"x": (2, 4, 7, 5)}, {"g": (4, 1, 1)}, second=True).limit(
    0, {"x": [[2, 5]]}, x="S2").limit(0, {"x": [[2, 2], [4, 3]]}, mesh=(2, 2), x=("S1", "S2"))
single("broadcast_position_parameter", "add", {"x": (3, 11, 4)}, {"p": (1, 11, 4)}).limit(0, {"x": [[4, 7]]}, x="S1")
single("broadcast_scalar_parameter", "mul", {"x": (3, 11)}, {"s": ()}, second=True).limit(0, {"x": [[4, 7]]}, x="S1")

# where
single("where_plain", "where", {"c": chance(0.5, 3, 7, 4), "a": (3, 7, 4), "b": (3, 7, 4)}).limit(
    0, {n: [[2, 5]] for n in "cab"}, c="S1", a="S1", b="S1")
single("where_condition_row", "where", {"c": chance(0.5, 7, 1), "a": (3, 7, 4), "b": ()})
single("where_values_column", "where", {"c": chance(0.5, 3, 7, 4), "a": (7, 1), "b": (3, 1, 4)})
single("where_all_outer", "where", {"c": chance(0.5, 3, 1, 1), "a": (1, 7, 1), "b": (1, 1, 4)})
single("where_scalar_condition", "where", {"c": np.array(True), "a": (5, 4), "b": (5, 4)})
single("where_zero_size", "where", {"c": chance(0.5, 0, 3), "a": (0, 3), "b": (3,)})

# The same tensor on both sides, and a value used again and again: gradients add up.
Case("reuse_square_by_mul", second=True).data(x=(3, 8)).step("mul", "x x", "y").returns("y")
Case("reuse_many", second=True).data(x=(3, 8), s=()).step("sin", "x", "a").step("mul", "x a", "b").step(
    "add", "b x", "c").step("mul", "c s", "d").step("add", "d a", "y").returns("y c")
Case("reuse_sub_self").data(x=(3, 8)).step("sub", "x x", "y").returns("y")

# Powers by tensors, and of numbers.
silent(single("binary_pow", "pow", {"a": uniform(0.3, 2.5, 2, 7, 5), "b": (2, 7, 5)}, second=True), 3, 4)
single("binary_pow_broadcast", "pow", {"a": uniform(0.3, 2.5, 3, 1, 5), "b": (4, 1)}, second=True)
single("binary_pow_signed", "pow", {"a": (4, 6), "b": np.array([0.0, 1.0, 2.0, 3.0, -1.0, -2.0])}).constant("b")
single("binary_pow_scalar_base", "pow", {"a": np.float32(1.7), "b": (4, 6)}, second=True)
single("binary_pow_zero_base", "pow", {"a": few_values(2, 4, 6), "b": few_values(3, 4, 6)})
single("binary_pow_of_nothing", "pow", {"a": (3, 0), "b": (1,)})
single("binary_pow_integers", "pow", {"a": few_integers(-3, 4, 6, 7), "b": few_integers(-3, 6, 7)})
single("binary_pow_mixed", "pow", {"a": uniform(0.3, 2.5, 4, 6), "b": few_integers(-2, 4, 6)})
for name, base in (("number", 1.7), ("zero", 0.0), ("one", 1.0)):
    silent(single(f"unary_pow_of_{name}", "pow", {"x": uniform(0.1, 2.5, 3, 9)}, args={"base": base}, second=base > 1), 4, 5)
single("unary_pow_of_two_integers", "pow", {"x": few_integers(-3, 9, 4, 6)}, args={"base": 2})

# Bounds that are tensors.
silent(single("clamp_tensors", "clamp", {"x": normal(3, 8, 5, scale=2), "min": normal(3, 8, 5, shift=-1), "max": normal(3, 8, 5, shift=1)}), 3, 5)
single("clamp_tensors_broadcast", "clamp", {"x": normal(1, 8, 5, scale=2), "min": normal(3, 1, 1, shift=-1), "max": normal(5, shift=1)})
single("clamp_tensors_ties", "clamp", {"x": few_values(3, 6, 7), "min": few_values(3, 6, 7), "max": few_values(3, 6, 7)})
single("clamp_tensors_crossed", "clamp", {"x": (4, 5), "min": np.float32(0.5), "max": np.float32(-0.5)})
single("clamp_tensors_integers", "clamp", {"x": few_integers(-5, 6, 4, 5), "min": few_integers(-3, 1, 5), "max": few_integers(0, 4, 4, 1)})
single("clamp_tensors_of_nothing", "clamp", {"x": (0, 5), "min": (5,), "max": (1, 1)})
silent(single("clamp_min_tensor", "clamp", {"x": (3, 8, 5), "min": (3, 8, 5)}), 0, 8)
silent(single("clamp_max_tensor", "clamp", {"x": (3, 8, 5), "max": (3, 8, 5)}, ins="x - max"), 7, 1)
single("clamp_min_tensor_ties", "clamp", {"x": few_values(3, 6, 7), "min": few_values(3, 7)})
