// Measuring: variants of one thing, interleaved in one run.
//
// Machines are shared and clocks drift, so two programs timed one after the other cannot be compared. Here
// every repeat runs each variant once (A B, B A, …), a repeat counts with the time of its slowest rank, and a
// ratio is between the best repeats of the two. Where other programs hold the cores, processor time says more
// than the clock on the wall, so it is taken too.
//
// Ranks that wait for each other are as slow as the slowest in every part of a call; where cores change their
// speeds each for itself, they are all fast at once less often than ranks that work alone, and the best of
// many repeats compares luck. There the median of the ratios within each repeat says more: `paired`.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/device.h"

namespace tessera::bench {

struct Settings {
  Communicator world;
  Device device = Device::Cpu;  // where tensors live
  int repeats = 7;
  bool quick = false;  // fewer repeats and smaller shapes: does it run at all
  std::string match;   // of `kernels` and `overhead`: cases that contain this
  int rounds() const { return quick ? 2 : repeats; }
};

struct Spent {
  double wall = 0;  // seconds
  double cpu = 0;
};
using Stopwatch = std::function<Spent(const std::function<void()>&)>;
// Until the call returns: on a device its work may only have begun.
Spent spent_in(const std::function<void()>& f);

struct Variant {
  std::string name;
  std::function<void()> run;
  int calls = 1;  // what is timed is one `run` divided by this
  Stopwatch stopwatch = &spent_in;
};

struct Timing {
  std::string variant;
  double best = 0;    // seconds a call
  double median = 0;  // over the repeats
  double paired = 1;  // median over the repeats of the time over the first variant's in the same repeat
  double cpu = 0;     // seconds of processor time a call, the best repeat; waiting for messages is busy too
};

// Of at least one value; the upper one of two in the middle.
double median(std::vector<double> values);

// Collective. Each variant runs once before anything is timed.
std::vector<Timing> interleaved(const Settings& settings, const std::vector<Variant>& variants);

// A variant that calls `f` so often that a repeat takes about `seconds` on this rank; the count is agreed on
// over the ranks. Collective if there is more than one rank.
Variant repeated(const Settings& settings, std::string name, std::function<void()> f, double seconds = 5e-3);

// What the host spends on a call whose tensors are on a device, which does the work later: a few calls, begun
// when the device has nothing to do, so that its queue is never full.
Variant host_part(const Settings& settings, std::string name, std::function<void()> f);

}  // namespace tessera::bench
