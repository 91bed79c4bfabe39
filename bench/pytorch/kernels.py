#!/usr/bin/env python3
"""Time single operations in PyTorch: those that tessera-bench's JSON lines describe ("recipe").

    tessera-bench --only kernels --json lines.jsonl
    python3 kernels.py lines.jsonl [--repeats 12] [--threads 1]

Every recipe runs forward (without recording) and backward (all gradients of a graph that is kept), on
contiguous tensors as PyTorch makes them and, where images are involved, on channels-last ones; the best repeat
counts. One JSON line a result. Without PyTorch the one line is {"skipped": ...} and the exit status 0.
"""
import argparse
import json
import math
import os
import sys
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", help="JSON lines of tessera-bench, or recipes alone, one a line")
    parser.add_argument("--repeats", type=int, default=12, help="of each pass of each recipe; the best counts")
    parser.add_argument("--seconds", type=float, default=0.005, help="of a repeat")
    parser.add_argument("--at-least-mib", type=float, default=0, help="only recipes whose input x is as large")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def recipes(path):
    seen = {}
    with open(path) as lines:
        for line in lines:
            parsed = json.loads(line)
            recipe = parsed.get("recipe", parsed)
            seen[json.dumps(recipe)] = recipe
    return list(seen.values())


IMAGES = ("group_norm", "group_norm_gelu", "batch_norm")
# Of maps, without anything that is learnt: f is torch.nn.functional.
MAPS = {
    "avg_pool2d": lambda torch, f, x: f.avg_pool2d(x, 2),
    "max_pool2d": lambda torch, f, x: f.max_pool2d(x, 2),
    "interpolate_nearest": lambda torch, f, x: f.interpolate(x, scale_factor=2, mode="nearest"),
    "interpolate_bilinear": lambda torch, f, x: f.interpolate(x, scale_factor=2, mode="bilinear"),
    "cat": lambda torch, f, x: torch.cat([x, x], 1),
    "mean": lambda torch, f, x: x.mean((2, 3)),
    "instance_norm": lambda torch, f, x: f.instance_norm(x),
}


def build(torch, recipe, channels_last):
    """(the tensors that get gradients, the function to time, which gives a tensor or a tuple of them)"""
    f = torch.nn.functional
    op, sizes = recipe["op"], recipe["x"]

    def parameter(*shape):
        return torch.randn(*shape, requires_grad=True)

    def image(shape):
        t = torch.randn(*shape)
        if channels_last:
            t = t.to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
        return t.requires_grad_(True)

    if op.startswith("conv"):
        dims = len(sizes) - 2
        x, w = image(sizes), image(recipe["w"])
        if op != "conv_transpose":
            b = parameter(recipe["w"][0])
            call = (f.conv2d, f.conv3d)[dims - 2]
            after = {"conv_relu": f.relu, "conv_gelu": f.gelu}.get(op, lambda t: t)
            return [x, w, b], lambda: after(call(x, w, b, recipe["stride"], recipe["padding"], 1, recipe["groups"]))
        b = parameter(recipe["w"][1])
        call = (f.conv_transpose2d, f.conv_transpose3d)[dims - 2]
        return [x, w, b], lambda: call(x, w, b, recipe["stride"])
    if op == "linear":
        x, w, b = parameter(*sizes), parameter(*recipe["w"]), parameter(recipe["w"][0])
        return [x, w, b], lambda: f.linear(x, w, b)
    if op == "linear_gelu":
        x, w, b = parameter(*sizes), parameter(*recipe["w"]), parameter(recipe["w"][0])
        return [x, w, b], lambda: f.gelu(f.linear(x, w, b))
    if op == "attention":
        q, k, v = parameter(*sizes), parameter(*sizes), parameter(*sizes)
        return [q, k, v], lambda: f.scaled_dot_product_attention(q, k, v)
    if op == "layer_norm":
        x, w, b = parameter(*sizes), parameter(sizes[-1]), parameter(sizes[-1])
        return [x, w, b], lambda: f.layer_norm(x, (sizes[-1],), w, b)
    if op == "add_layer_norm":
        x, residual, w, b = parameter(*sizes), parameter(*sizes), parameter(sizes[-1]), parameter(sizes[-1])

        def add_and_norm():
            added = torch.add(x, residual)
            return added, f.layer_norm(added, (sizes[-1],), w, b)

        return [x, residual, w, b], add_and_norm
    if op == "group_norm":
        x, w, b = image(sizes), parameter(sizes[1]), parameter(sizes[1])
        return [x, w, b], lambda: f.group_norm(x, recipe["groups"], w, b)
    if op == "group_norm_gelu":
        x, w, b = image(sizes), parameter(sizes[1]), parameter(sizes[1])
        return [x, w, b], lambda: f.gelu(f.group_norm(x, recipe["groups"], w, b))
    if op == "batch_norm":
        x, w, b = image(sizes), parameter(sizes[1]), parameter(sizes[1])
        return [x, w, b], lambda: f.batch_norm(x, None, None, w, b, training=True)
    if op in MAPS:
        x = image(sizes)
        return [x], lambda: MAPS[op](torch, f, x)
    x = parameter(*sizes)
    if op == "add":
        y = parameter(*sizes)
        return [x, y], lambda: torch.add(x, y)
    call = {"gelu": f.gelu, "tanh": torch.tanh, "gelu_tanh": lambda t: f.gelu(t, approximate="tanh"),
            "sin": torch.sin, "softplus": f.softplus, "pow_2": lambda t: torch.pow(t, 2),
            "softmax": lambda t: torch.softmax(t, -1)}[op]
    return [x], lambda: call(x)


def best_of(f, given):
    """(seconds, seconds of processor time) of one call, each in the best of the repeats."""
    f()
    once = float("inf")
    for _ in range(3):
        start = time.process_time()
        f()
        once = min(once, max(time.process_time() - start, 1e-7))
    calls = max(1, math.ceil(given.seconds / once))
    wall = processor = float("inf")
    for _ in range(given.repeats):
        start, start_processor = time.perf_counter(), time.process_time()
        for _ in range(calls):
            f()
        processor = min(processor, (time.process_time() - start_processor) / calls)
        wall = min(wall, (time.perf_counter() - start) / calls)
    return wall, processor


def main():
    given = arguments()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)  # before PyTorch reads it
    try:
        import torch
    except (ImportError, OSError) as why:
        print(json.dumps({"skipped": f"PyTorch cannot be imported: {why}"}))
        return 0
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    for recipe in recipes(given.lines):
        if 4 * math.prod(recipe["x"]) < given.at_least_mib * 2**20:
            continue
        images = recipe["op"].startswith("conv") or recipe["op"] in IMAGES or recipe["op"] in MAPS
        for layout in ("contiguous", "channels_last") if images else ("contiguous",):
            inputs, run = build(torch, recipe, layout == "channels_last")

            def forward():
                with torch.no_grad():
                    run()

            result = {"recipe": recipe, "layout": layout}
            result["forward_s"], result["forward_cpu_s"] = best_of(forward, given)
            if recipe["op"] != "add":
                y = run()
                y = y if isinstance(y, tuple) else (y,)
                g = [0.5 * part.detach() for part in y]
                result["backward_s"], result["backward_cpu_s"] = best_of(
                    lambda: torch.autograd.grad(y, inputs, g, retain_graph=True), given)
            result["torch"] = torch.__version__
            result["isa"] = torch.backends.cpu.get_cpu_capability()
            print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
