"""A case under construction, its evaluation, and the file it becomes."""
import json
import zlib

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from .operations import OPERATIONS

ALL_CASES = {}
VERSION = torch.__version__.split("+")[0]


# Contents: functions from a random generator to an array. A bare tuple of sizes means `normal`.
def normal(*sizes, scale=1.0, shift=0.0):
    return lambda rng: (shift + scale * rng.standard_normal(sizes)).astype(np.float32)


def uniform(lo, hi, *sizes):
    return lambda rng: rng.uniform(lo, hi, sizes).astype(np.float32)


def chance(probability, *sizes):
    """A BOOL tensor, true with the given probability."""
    return lambda rng: rng.random(sizes) < probability


def few_values(count, *sizes):
    """Small whole numbers, so that ties are common."""
    return lambda rng: rng.integers(0, count, sizes).astype(np.float32)


def few_integers(lo, hi, *sizes):
    """An int64 tensor of numbers from lo up to, but not including, hi."""
    return lambda rng: rng.integers(lo, hi, sizes, dtype=np.int64)


class Case:
    """Tensors and steps; making one registers it. The random numbers depend on the name only, so that a new
    case never changes an old file."""

    def __init__(self, name, second=False):
        assert name not in ALL_CASES, f"two cases are called {name}"
        ALL_CASES[name] = self
        self.name, self.second = name, second
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.tensors, self.kinds, self.fixed = {}, {}, set()
        self.cotangents, self.program, self.outs, self.limits = {}, [], [], []

    def _add(self, kind, name, content):
        content = normal(*content) if isinstance(content, tuple) else content
        made = content(self.rng) if callable(content) else content
        made = np.array(made, order="C")  # the file format is row-major whatever the array is
        self.tensors[name] = made.astype(np.float32) if made.dtype == np.float64 else made
        self.kinds[name] = kind

    def data(self, **contents):
        for name, content in contents.items():
            self._add("in", name, content)
        return self

    def param(self, **contents):
        for name, content in contents.items():
            self._add("param", name, content)
        return self

    def constant(self, *names):
        """These tensors need no gradient."""
        self.fixed.update(names)
        return self

    def step(self, op, ins, outs, **args):
        """`ins` and `outs` are names with spaces between; "-" stands for a tensor that is left out."""
        inputs = [None if name == "-" else name for name in ins.split()]
        self.program.append({"op": op, "in": inputs, "out": outs.split(), "args": args})
        return self

    def returns(self, names, **cotangents):
        """The outputs that are compared, and cotangents where they shall not be random."""
        self.outs = names.split()
        self.cotangents = {n: np.array(c, dtype=np.float32, order="C") for n, c in cotangents.items()}
        return self

    def limit(self, most, cuts, mesh=(2,), **placements):
        """Sharded so, the forward pass sends at most `most` bytes. Placements: name="S1" or ("S1", "S2")."""
        as_list = {n: [p] if isinstance(p, str) else list(p) for n, p in placements.items()}
        self.limits.append({"mesh": list(mesh), "placements": as_list, "cuts": cuts, "max_forward_bytes": int(most)})
        return self

    # ---- evaluation

    def run(self, dtype, cotangents, directions=None):
        """Outputs, gradients, second gradients at one precision (dicts of torch tensors)."""
        values = {}
        for name, array in self.tensors.items():
            t = torch.from_numpy(array.copy())
            values[name] = t.to(dtype).requires_grad_(name not in self.fixed) if t.is_floating_point() else t
        leaves = {n: t for n, t in values.items() if t.requires_grad}
        for s in self.program:
            made = OPERATIONS[s["op"]](*[None if n is None else values[n] for n in s["in"]], **s["args"])
            made = made if isinstance(made, (tuple, list)) else (made,)
            assert len(made) >= len(s["out"]), (self.name, s)
            values.update(zip(s["out"], made))
        outs = {n: values[n] for n in self.outs}
        pull = [(t, cotangents[n]) for n, t in outs.items() if n in cotangents and t.requires_grad]
        first = self._pull(pull, leaves, dtype, self.second)
        again = {}
        if self.second and directions is not None:
            usable = [(t, directions[n]) for n, t in first.items() if t.requires_grad]
            again = self._pull(usable, leaves, dtype, False)
        return outs, first, again

    @staticmethod
    def _pull(pairs, leaves, dtype, keep):
        if not pairs or not leaves:
            return {}
        total = sum((t * torch.from_numpy(c).to(dtype)).sum() for t, c in pairs)
        grads = torch.autograd.grad(total, list(leaves.values()), create_graph=keep, allow_unused=True)
        return {n: g for n, g in zip(leaves, grads) if g is not None}

    def random_like(self, tensors):
        return {n: self.rng.standard_normal(tuple(t.shape)).astype(np.float32)
                for n, t in tensors.items() if t.is_floating_point()}

    def evaluate(self):
        """All tensors of the file and its metadata."""
        outs, _, _ = self.run(torch.float64, {})
        cots = {**self.random_like(outs), **self.cotangents}
        directions = None
        if self.second:
            directions = self.random_like(self.run(torch.float64, cots)[1])
        exact = self.run(torch.float64, cots, directions)
        single = self.run(torch.float32, cots, directions)
        assert not self.second or exact[2], f"{self.name}: all second derivatives are zero"

        tensors, tolerance = {f"{self.kinds[n]}.{n}": a for n, a in self.tensors.items()}, {}
        tensors.update({f"cot.{n}": c for n, c in cots.items()})
        tensors.update({f"v.{n}": d for n, d in (directions or {}).items()})
        for prefix, want, got in zip(("out", "grad", "grad2"), exact, single):
            for n, t in want.items():
                # Indices and truth values keep their type, and so does what is float64 whatever the inputs are.
                wide = prefix == "out" and got[n].dtype == torch.float64
                stored = t.detach().float() if t.is_floating_point() and not wide else t.detach()
                tensors[f"{prefix}.{n}"] = np.array(stored.numpy(), order="C")
                tolerance[f"{prefix}.{n}"] = allowed_error(t.detach(), got[n].detach())
        metadata = {"format": "tessera-case-1", "name": self.name, "source": f"PyTorch {VERSION} CPU float64",
                    "program": json.dumps(self.program), "tolerance": json.dumps(tolerance)}
        if self.limits:
            metadata["limits"] = json.dumps(self.limits)
        return tensors, metadata

    def write(self, folder):
        tensors, metadata = self.evaluate()
        save_file(tensors, f"{folder}/{self.name}.safetensors", metadata=metadata)

    def differences(self, folder):
        """How the stored file differs from what would be written now (list of lines)."""
        tensors, metadata = self.evaluate()
        with safe_open(f"{folder}/{self.name}.safetensors", "numpy") as stored:
            old = stored.metadata()
            found = [f"metadata {k}" for k in ("name", "program", "limits") if old.get(k) != metadata.get(k)]
            found += [f"tensor {k} is only on one side" for k in set(stored.keys()) ^ set(tensors)]
            tolerance = json.loads(metadata["tolerance"])
            for key in set(stored.keys()) & set(tensors):
                was = stored.get_tensor(key)
                if was.shape != tensors[key].shape or was.dtype != tensors[key].dtype:
                    found.append(f"shape or type of {key}")
                elif not np.allclose(was, tensors[key], rtol=0, atol=tolerance.get(key, 0.0), equal_nan=True):
                    found.append(f"values of {key}")
        return found


def allowed_error(exact, single):
    """Thirty times what PyTorch itself loses in float32, and never less than 1e-5 of the largest value."""
    if not exact.is_floating_point():
        return 0.0
    finite = torch.isfinite(exact)
    if not finite.any():
        return 1e-6
    loss = float((exact - single.double()).abs()[finite].max())
    return max(30 * loss, 1e-5 * float(exact.abs()[finite].max()), 1e-6)


def single(name, op, data=None, params=None, ins=None, outs="y", args=None, second=False, constant=()):
    """A case of one step. `ins` gives the order of the tensors when it is not data, then params."""
    case = Case(name, second).data(**(data or {})).param(**(params or {})).constant(*constant)
    order = ins or " ".join([*(data or {}), *(params or {})])
    return case.step(op, order, outs, **(args or {})).returns(outs)
