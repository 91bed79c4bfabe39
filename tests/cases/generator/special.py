"""NaN, infinities and zeros of both signs: where they lead is as much a part of an operation as its numbers."""
import numpy as np

from .case import normal, single

INF, NAN = np.inf, np.nan
# Sharded, one rank has the NaN and another the infinity.
VALUES = np.array([-INF, -21.0, -1.0, -0.0, 0.0, 0.5, 1.0, 21.0, INF, NAN])
EVERY = (("nan", NAN), ("infinity", INF), ("minus_infinity", -INF))


def holding(*sizes, at=None, scale=1.0):
    """Normal numbers but at the places given: a value by its index."""
    def make(rng):
        x = normal(*sizes, scale=scale)(rng)
        for index, value in (at or {}).items():
            x[index] = value
        return x
    return make


def rows(width):
    """Rows with one NaN, one infinity of either sign, both signs, NaN beside infinity, a zero; and a plain one."""
    return holding(7, width, at={(0, 1): NAN, (1, width - 1): INF, (2, 2): -INF, (3, 0): INF, (3, width - 2): -INF, (4, 3): NAN,
                                 (4, width - 1): INF, (5, 2): 0.0})


def samples(*sizes):
    """Samples of maps with one NaN, one infinity of either sign, and a plain one; in channel 0, of the last axes at 1."""
    inside = (1,) * (len(sizes) - 1)
    return holding(4, *sizes, at={(0, 0, *inside): NAN, (1, 0, *inside): INF, (2, 0, *inside): -INF})


for op in ("relu silu sigmoid tanh exp log sqrt rsqrt abs neg square sin cos erf softplus reciprocal").split():
    single(f"special_{op}", op, {"x": VALUES})
for name, op, args in (("gelu", "gelu", {"approximate": "none"}), ("gelu_tanh", "gelu", {"approximate": "tanh"}),
                       ("leaky_relu", "leaky_relu", {"negative_slope": 0.2}), ("elu", "elu", {"alpha": 0.7}),
                       ("clamp", "clamp", {"min": -0.5, "max": 0.5}), ("clamp_below", "clamp", {"min": -0.5, "max": None}),
                       ("clamp_above", "clamp", {"min": None, "max": 0.5})):
    single(f"special_{name}", op, {"x": VALUES}, args=args)
for name, exponent in (("half", 0.5), ("minus_half", -0.5), ("one_and_a_half", 1.5), ("zero", 0.0), ("one", 1.0), ("two", 2.0), ("three", 3.0),
                       ("minus_one", -1.0), ("minus_two", -2.0), ("fraction", 2.3), ("third", 1 / 3)):
    single(f"special_pow_{name}", "pow_scalar", {"x": VALUES}, args={"exponent": exponent})
# Every pair of values.
LEFT, RIGHT = (np.array(a, order="C") for a in np.meshgrid(VALUES, VALUES, indexing="ij"))
for op in "add sub mul div maximum minimum".split():
    single(f"special_{op}", op, {"a": LEFT, "b": RIGHT})
single("special_where", "where", {"c": np.array([True, False] * 5), "a": VALUES, "b": VALUES[::-1].copy()})
# Powers and bounds that do not drown what is small.
NEAR = np.array([-INF, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, INF, NAN])
LEFT, RIGHT = (np.array(a, order="C") for a in np.meshgrid(NEAR, NEAR, indexing="ij"))
single("special_pow", "pow", {"a": LEFT, "b": RIGHT})
for name, base in (("zero", 0.0), ("one", 1.0), ("two", 2.0), ("minus_two", -2.0), ("infinity", INF), ("nan", NAN)):
    single(f"special_pow_of_{name}", "pow", {"x": NEAR}, args={"base": base})
X, LOW, HIGH = (np.array(a, order="C") for a in np.meshgrid(*3 * [np.array([-INF, -1.0, 0.0, 1.0, INF, NAN])], indexing="ij"))
single("special_clamp_tensors", "clamp", {"x": X, "min": LOW, "max": HIGH})
single("special_clamp_min", "clamp", {"x": X[:, :, 0].copy(), "min": LOW[:, :, 0].copy()})
single("special_clamp_max", "clamp", {"x": X[:, :, 0].copy(), "max": LOW[:, :, 0].copy()}, ins="x - max")
