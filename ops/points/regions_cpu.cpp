#include "ops/points/regions.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ops/points/geometry.h"

namespace tessera::cpu::points {
namespace {

constexpr int kHalvings = 60;
using Corner = std::array<double, Dims::kMax>;

struct Mass {
  Corner lo{};
  Corner hi{};
  double weight = 0;

  double below(int d, double at) const {
    const auto i = static_cast<std::size_t>(d);
    if (at <= lo[i]) return 0;
    return at > hi[i] ? weight : weight * ((at - lo[i]) / (hi[i] - lo[i]));
  }
};

class Divider {
 public:
  Divider(int dims, Regions& out, double share) : dims_(dims), out_(out), share_(share) {}

  // Gives `count` regions from `first` on to the masses; the cut that divides them, or the region.
  int divide(const std::vector<Mass>& masses, int first, int count) {
    if (count == 1) {
      out_.heaviest = std::max(out_.heaviest, total(masses) / share_);
      return -1 - first;
    }
    const int lesser = count / 2;
    const auto number = out_.cuts.size();
    RegionCut cut = plane(masses, static_cast<double>(lesser) / count);
    out_.cuts.push_back(cut);
    std::vector<Mass> less;
    std::vector<Mass> rest;
    for (const Mass& m : masses) clip(m, cut, less, rest);
    cut.less = divide(less, first, lesser);
    cut.rest = divide(rest, first + lesser, count - lesser);
    out_.cuts[number] = cut;
    return static_cast<int>(number);
  }

 private:
  static double total(const std::vector<Mass>& masses) {
    double sum = 0;
    for (const Mass& m : masses) sum += m.weight;
    return sum;
  }

  RegionCut plane(const std::vector<Mass>& masses, double fraction) const {
    RegionCut cut;
    double lo = 0;
    double hi = 0;
    for (int d = 0; d < dims_; ++d) {
      const auto i = static_cast<std::size_t>(d);
      double low = std::numeric_limits<double>::infinity();
      double high = -low;
      for (const Mass& m : masses) {
        low = std::min(low, m.lo[i]);
        high = std::max(high, m.hi[i]);
      }
      if (d > 0 && !(high - low > hi - lo)) continue;
      cut.dim = d;
      lo = low;
      hi = high;
    }
    const double wanted = fraction * total(masses);
    for (int step = 0; step < kHalvings && lo < hi; ++step) {
      const double middle = lo + (hi - lo) / 2;
      double below = 0;
      for (const Mass& m : masses) below += m.below(cut.dim, middle);
      (below < wanted ? lo : hi) = middle;
    }
    cut.at = hi;
    return cut;
  }

  static void clip(const Mass& m, const RegionCut& cut, std::vector<Mass>& less, std::vector<Mass>& rest) {
    const auto i = static_cast<std::size_t>(cut.dim);
    const double below = m.below(cut.dim, cut.at);
    if (below > 0) {
      less.push_back(m);
      less.back().weight = below;
      less.back().hi[i] = std::min(m.hi[i], cut.at);
    }
    if (below < m.weight) {
      rest.push_back(m);
      rest.back().weight = m.weight - below;
      rest.back().lo[i] = std::max(m.lo[i], cut.at);
    }
  }

  int dims_;
  Regions& out_;
  double share_;
};

}  // namespace

Regions divide(const Array& boxes, const Array& weights, int regions) {
  Regions out;
  const auto dims = static_cast<int>(boxes.size(2));
  std::vector<Mass> masses;
  double total = 0;
  dispatch_coordinates(boxes.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t b = 0; b < boxes.size(0); ++b) {
      Mass m;
      std::copy_n(boxes.data<T>() + 2 * b * dims, dims, m.lo.begin());
      std::copy_n(boxes.data<T>() + (2 * b + 1) * dims, dims, m.hi.begin());
      m.weight = weights.data<double>()[b];
      total += m.weight;
      masses.push_back(m);
    }
  });
  Divider(dims, out, total / regions).divide(masses, 0, regions);
  return out;
}

void assign_regions(const AssignRegionsArgs& args) {
  const std::vector<RegionCut>& cuts = args.regions.cuts;
  const std::int64_t dims = args.x.size(1);
  dispatch_coordinates(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t row = 0; row < args.x.size(0); ++row) {
      int at = cuts.empty() ? -1 : 0;
      while (at >= 0) {
        const RegionCut& cut = cuts[static_cast<std::size_t>(at)];
        const auto v = static_cast<double>(args.x.data<T>()[row * dims + cut.dim]);
        at = v < cut.at ? cut.less : cut.rest;
      }
      args.out.data<std::int64_t>()[row] = -1 - at;
    }
  });
}

}  // namespace tessera::cpu::points
