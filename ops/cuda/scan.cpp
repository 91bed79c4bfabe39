// Running sums, argmax and argmin, and joined moments on the device.
#include <algorithm>
#include "ops/cuda/scan_kernels.h"

#include "ops/cuda/register.h"
#include "ops/cuda/upload.h"
#include "ops/reduce/merge_kernel.h"
#include "ops/reduce/reduce_kernels.h"
#include "runtime/cuda/array_walk.h"

namespace tessera::cuda {
namespace {

ScanData scan_data(const Array& x, const std::vector<std::int64_t>& lengths, Array& memory) {
  ScanData d;
  d.outer = x.size(0);
  d.n = x.size(1);
  d.inner = x.size(2);
  d.pieces = std::ssize(lengths);
  std::vector<std::int64_t> firsts{0};
  for (const std::int64_t l : lengths) {
    firsts.push_back(firsts.back() + l);
    d.longest = std::max(d.longest, l);
  }
  d.firsts = number_list(firsts, memory);
  d.x = elements_of(x);
  return d;
}

void piece_sums_cuda(const cpu::PieceSumsArgs& args) {
  if (args.sums.numel() == 0) return;
  Array memory;
  piece_sums(scan_data(args.x, args.lengths, memory), args.sums.raw(), current_stream());
  check_launch("piece_sums");
}

void running_sums_cuda(const cpu::RunningSumsArgs& args) {
  if (args.x.numel() == 0) return;
  Array memory;
  running_sums({scan_data(args.x, args.lengths, memory), args.out.raw(),
                args.starts.defined() ? args.starts.raw() : nullptr, args.reverse},
               current_stream());
  check_launch("running_sums");
}

void extremum_index_cuda(const cpu::ExtremumIndexArgs& args) {
  if (args.key.numel() == 0) return;
  Array positions;
  Array offsets;
  Extrema e;
  e.outer = args.x.size(0);
  e.n = args.x.size(1);
  e.inner = args.x.size(2);
  e.key = args.key.data<std::int64_t>();
  e.index = args.index.data<std::int64_t>();
  e.x = elements_of(args.x);
  e.positions = number_list(args.positions, positions);
  e.offsets = number_list(args.offsets, offsets);
  e.none = args.none;
  e.largest = args.largest;
  extrema(e, current_stream());
  check_launch("extremum_index");
}

void merge_extrema_cuda(const cpu::MergeExtremaArgs& args) {
  if (args.key.numel() == 0) return;
  merge_extrema(
      {args.keys.size(0), args.key.numel(), args.key.data<std::int64_t>(), args.index.data<std::int64_t>(),
       args.keys.data<std::int64_t>(), args.indices.data<std::int64_t>()},
      current_stream());
  check_launch("merge_extrema");
}

void merge_moments_cuda(const cpu::MergeMomentsArgs& args) {
  if (args.mean.numel() == 0) return;
  MergeMoments m;
  m.parts = args.parts.size(0);
  m.rows = args.mean.numel();
  m.kinds = args.counts_there.defined() ? 1 : std::ssize(args.counts) / m.parts;
  m.mean = args.mean.raw();
  m.rest = args.rest.raw();
  m.m2 = args.m2.raw();
  m.from = elements_of(args.parts);
  Array memory = args.counts_there;
  if (memory.defined()) {
    m.more = memory.data<double>();
  } else if (std::ssize(args.counts) <= MergeMoments::kCounts) {
    std::copy(args.counts.begin(), args.counts.end(), m.few);
  } else {
    memory = uploaded(std::span<const double>(args.counts));
    m.more = memory.data<double>();
  }
  merge_moments(m, current_stream());
  check_launch("merge_moments");
}

}  // namespace

void register_scans() {
  kernels::piece_sums.set(Device::Cuda, &piece_sums_cuda);
  kernels::running_sums.set(Device::Cuda, &running_sums_cuda);
  kernels::extremum_index.set(Device::Cuda, &extremum_index_cuda);
  kernels::merge_extrema.set(Device::Cuda, &merge_extrema_cuda);
  kernels::merge_moments.set(Device::Cuda, &merge_moments_cuda);
}

}  // namespace tessera::cuda
