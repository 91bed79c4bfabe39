#!/usr/bin/env python3
"""Time whole training steps in PyTorch, for comparison with tessera-bench.

    pip install torch            # from PyPI; brings numpy's and its own dependencies along
    python3 train_step.py --model vit --steps 5 --repeats 5

One step is: clear the gradients, forward, loss (mean of the squared output), backward, AdamW (learning rate
1e-3, PyTorch's defaults), and reading the loss as a number. float32, one thread unless told. The models:

    vit   image (1, 8, 256, 256), patches of 8 (1024 tokens), width 192, 4 blocks of 3 heads, MLP of 4 times
          the width, mean over the tokens, 10 outputs
    conv  image (1, 8, 512, 512), six times [3x3 convolution to 32 channels, group norm of 8 groups, GELU],
          then a 1x1 convolution to 4 channels

The last line printed is JSON: best and median seconds per step over the repeats (each repeat is the mean of
--steps steps), and the best processor time, which other programs on the machine disturb less. Freshly mapped memory costs PyTorch dearly on large activations; for a comparison with a
runtime that keeps its memory, set MALLOC_MMAP_MAX_=0 and MALLOC_TRIM_THRESHOLD_=8589934592 before starting
(--keep-memory does so and starts again). Without PyTorch the line is {"skipped": ...} and the exit status 0.
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time

KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "8589934592"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("vit", "conv"), default="vit")
    parser.add_argument("--steps", type=int, default=5, help="steps per repeat")
    parser.add_argument("--repeats", type=int, default=5, help="how often to time --steps steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the first repeat")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--channels-last", action="store_true", help="images and filters in channels-last memory")
    parser.add_argument("--keep-memory", action="store_true", help="start again with malloc set to keep its memory")
    given = parser.parse_args()
    for name in ("steps", "repeats", "threads"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} is {getattr(given, name)}, allowed is 1 or more")
    return given


def vit(torch):
    nn = torch.nn
    width, heads, depth, patch, image, channels = 192, 3, 4, 8, 256, 8

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.into = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x):
            batch, tokens, _ = x.shape
            parts = self.into(x).view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
            return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Sequential(nn.LayerNorm(width), Attention())
            self.think = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                       nn.Linear(4 * width, width))

        def forward(self, x):
            x = x + self.mix(x)
            return x + self.think(x)

    class VisionTransformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(channels, width, patch, stride=patch)
            self.position = nn.Parameter(0.02 * torch.randn(1, (image // patch) ** 2, width))
            self.blocks = nn.Sequential(*(Block() for _ in range(depth)))
            self.last = nn.LayerNorm(width)
            self.head = nn.Linear(width, 10)

        def forward(self, x):
            tokens = self.patches(x).flatten(2).transpose(1, 2) + self.position
            return self.head(self.last(self.blocks(tokens)).mean(dim=1))

    return VisionTransformer(), torch.randn(1, channels, image, image)


def conv(torch):
    nn = torch.nn
    layers, before = [], 8
    for _ in range(6):
        layers += [nn.Conv2d(before, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.GELU()]
        before = 32
    return nn.Sequential(*layers, nn.Conv2d(before, 4, 1)), torch.randn(1, 8, 512, 512)


def peak_bytes(torch, step):
    """The most that tensors take at once during a step, over what is there before it, as the profiler counts."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    now = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def main():
    given = arguments()
    if given.keep_memory and any(os.environ.get(k) != v for k, v in KEEP_MEMORY.items()):
        os.environ.update(KEEP_MEMORY)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    os.environ["OMP_NUM_THREADS"] = str(given.threads)  # before PyTorch reads it
    try:
        import torch
    except (ImportError, OSError) as why:
        print("PyTorch is not installed here (python3 -m pip install torch); nothing to compare with.", file=sys.stderr)
        print(json.dumps({"skipped": f"PyTorch cannot be imported: {why}"}))
        return 0
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    model, image = {"vit": vit, "conv": conv}[given.model](torch)
    if given.channels_last:
        model, image = model.to(memory_format=torch.channels_last), image.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss = model(image).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step() for _ in range(given.warmup)]
    seconds, processor = [], []
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(given.repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        losses += [step() for _ in range(given.steps)]
        seconds.append((time.perf_counter() - start) / given.steps)
        processor.append((time.process_time() - start_cpu) / given.steps)
    faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / (given.steps * given.repeats)
    # What stays from step to step (parameters, gradients, optimizer state) and what a step adds. Gradients are
    # freed and made anew by a step, so they are in the second number already.
    kept = sum(p.numel() * 4 * 3 for p in model.parameters()) + image.numel() * 4
    print(json.dumps({
        "what": "train_step", "library": "pytorch", "torch": torch.__version__, "model": given.model,
        "input": list(image.shape), "parameters": sum(p.numel() for p in model.parameters()), "dtype": "float32",
        "threads": torch.get_num_threads(), "steps": given.steps, "repeats": given.repeats,
        "best_s": round(min(seconds), 6), "median_s": round(statistics.median(seconds), 6),
        "cpu_s": round(min(processor), 6),
        "first_loss": losses[0], "last_loss": losses[-1], "keep_memory": given.keep_memory,
        "channels_last": given.channels_last, "page_faults": faults, "peak_bytes": kept + peak_bytes(torch, step),
        "cpu": torch.backends.cpu.get_cpu_capability()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
