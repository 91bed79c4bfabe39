#include "ops/halo.h"

#include "ops/shape/layout_ops.h"
#include "ops/window/window_buffer.h"

namespace tessera {
namespace {

bool reads_itself(const Window& w) {
  return w.kernel == 1 && w.stride == 1 && w.pad_lo == 0 && w.pad_hi == 0;
}

// The outputs that a rank has along a windowed dim.
Interval outputs_of(const SpecPtr& y, const Window& w, std::int64_t n, int rank, int d) {
  if (!y) return {0, w.output_size(n)};
  const Intervals& list = y->intervals(d, rank);
  return list.empty() ? Interval{0, 0} : list.front();
}

}  // namespace

std::shared_ptr<const Halo> halo_of(const SpecPtr& x, const SpecPtr& y, const Dims& x_sizes,
                                    const std::vector<Window>& windows) {
  TS_CHECK((x == nullptr) == (y == nullptr), "halo_of", "needs both specs, or none for plain tensors");
  TS_CHECK(static_cast<int>(windows.size()) == x_sizes.size(), "halo_of",
           "needs one window per dim of {}, given {}", x_sizes.str(), windows.size());
  for (int d = 0; d < x_sizes.size(); ++d)
    TS_CHECK(!x || reads_itself(windows[static_cast<std::size_t>(d)]) ||
                 (x->single_interval(d) && y->single_interval(d)),
             "halo_of", "dim {} of {} is held in several intervals by one rank; mark its letter with ~", d,
             x->str());
  BoxMap map = plan_box_map(x.get(), x_sizes, [&](int rank, int d) -> DimSegments {
    const Window& w = windows[static_cast<std::size_t>(d)];
    if (reads_itself(w)) return x ? own_segments(*x, rank, d) : DimSegments{{{0, 0, x_sizes[d]}}, x_sizes[d]};
    const Interval need = w.input_of(outputs_of(y, w, x_sizes[d], rank, d));
    return {window_segments(need, x_sizes[d], w.mode), need.length()};
  });
  auto halo = std::make_shared<Halo>();
  halo->map_ = std::make_shared<BoxMap>(std::move(map));
  return halo;
}

Array Halo::gather(const Array& x, double outside) const {
  return fetch_in_order(*map_, x.contiguous(), outside);
}

Array Halo::scatter_add(const Array& buffer) const { return give_back_in_order(*map_, buffer.contiguous()); }

}  // namespace tessera
