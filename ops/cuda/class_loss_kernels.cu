#include <limits>

#include "ops/cuda/device_math.h"
#include "ops/cuda/loss_kernels.h"
#include "ops/cuda/team.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

// What a target means.
template <class W>
struct Targets {
  ClassElements d;
  TS_DEVICE std::int64_t of(std::int64_t row) const { return Ptr<const std::int64_t>(d.target)[row]; }
  TS_DEVICE bool counts(std::int64_t target) const {
    return target != d.ignore && target >= 0 && target < d.classes;
  }
  // Among the classes of x, or -1.
  TS_DEVICE std::int64_t place(std::int64_t target) const {
    if (!counts(target)) return -1;
    if (d.places != nullptr) return Ptr<const std::int64_t>(d.places)[target];
    const std::int64_t c = target - d.first;
    return c >= 0 && c < d.here ? c : -1;
  }
  TS_DEVICE W weight(std::int64_t target) const {
    return d.weight != nullptr ? Ptr<const W>(static_cast<const W*>(d.weight))[target] : W(1);
  }
  TS_DEVICE W weight_here(std::int64_t c) const {
    return d.weight_here != nullptr ? Ptr<const W>(static_cast<const W*>(d.weight_here))[c] : W(1);
  }
  TS_DEVICE double total_weight() const {
    return d.total_weight != nullptr ? Ptr<const double>(d.total_weight)[0] : static_cast<double>(d.classes);
  }
};

// What a row without any finite number is shifted by.
template <class W>
TS_DEVICE W shift_of(W top) {
  return top == -std::numeric_limits<W>::infinity() ? W(0) : top;
}

// stats [terms, rows]
template <class Team, class T>
struct ClassRow : Team::Kind {
  Targets<Wide<T>> targets;
  std::int64_t rows;
  Ptr<const T> x;
  Ptr<Wide<T>> stats;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const Team team(block);
    const ClassElements& d = targets.d;
    const std::int64_t r = team.row();
    if (r >= rows) return;
    const std::int64_t sample = r / d.space;
    const Ptr<const T> row = x + (sample * d.here * d.space + (r - sample * d.space));
    W top = -std::numeric_limits<W>::infinity();
    double sum = 0;
    double weighted = 0;
    if (d.logits) {
      for (std::int64_t c = team.first(); c < d.here; c += team.step()) {
        const W v = load(row[c * d.space]);
        top = v > top ? v : top;
      }
      top = team.reduce(top, LargerNumber<W>());
      const W shift = shift_of(top);
      for (std::int64_t c = team.first(); c < d.here; c += team.step()) {
        const W v = load(row[c * d.space]);
        sum += static_cast<double>(math::vexp_flushed(v - shift));
        if (d.terms == 4) weighted += static_cast<double>(targets.weight_here(c) * v);
      }
      sum = team.reduce(sum, Plus<double>());
      weighted = team.reduce(weighted, Plus<double>());
    }
    if (!team.writes()) return;
    if (d.logits) {
      stats[r] = top;
      stats[rows + r] = static_cast<W>(sum);
      if (d.terms == 4) stats[3 * rows + r] = static_cast<W>(weighted);
    }
    const std::int64_t c = targets.place(targets.of(r));
    stats[(d.logits ? 2 : 0) * rows + r] = c < 0 ? W(0) : static_cast<W>(load(row[c * d.space]));
  }
};

struct LowerRow {
  TS_DEVICE std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a < b ? a : b; }
};

// What all rows add up to: 1 and the first target that is no class (null: there is none, 0 and 0), losses,
// weights.
TS_DEVICE void write_sums(Ptr<double> sums, Ptr<const std::int64_t> wrong, double loss, double weight) {
  sums[0] = wrong ? 1.0 : 0.0;
  sums[1] = wrong ? static_cast<double>(*wrong) : 0.0;
  sums[2] = loss;
  sums[3] = weight;
}

// What the rows of a block add up to: the first whose target is no class, losses, weights. A single block
// writes the sums.
template <class T>
struct LossRows : Cooperative {
  using W = Wide<T>;
  Targets<W> targets;
  std::int64_t rows;
  std::int64_t ranks;
  Ptr<const W> parts;  // [ranks, terms, rows]
  Ptr<T> losses;
  Ptr<W> lse;
  Ptr<double> partial;  // [3, blocks]
  Ptr<double> sums;
  TS_DEVICE W number(std::int64_t rank, std::int64_t term, std::int64_t r) const {
    return parts[(rank * targets.d.terms + term) * rows + r];
  }
  TS_DEVICE double lse_of(std::int64_t r) const {
    W top = -std::numeric_limits<W>::infinity();
    for (std::int64_t p = 0; p < ranks; ++p) {
      const W t = number(p, 0, r);
      top = t > top ? t : top;
    }
    const auto shift = static_cast<double>(shift_of(top));
    double sum = 0;
    for (std::int64_t p = 0; p < ranks; ++p) {
      const W own = number(p, 0, r);
      const double factor = own == top ? 1.0 : math::vexp(static_cast<double>(own) - shift);
      sum += static_cast<double>(number(p, 1, r)) * factor;
    }
    return shift + math::vlog(sum);
  }
  TS_DEVICE double loss(std::int64_t r, std::int64_t y, double all_lse) const {
    const ClassElements& d = targets.d;
    double picked = 0;
    double weighted = 0;
    for (std::int64_t p = 0; p < ranks; ++p) {
      picked += static_cast<double>(number(p, d.logits ? 2 : 0, r));
      if (d.terms == 4) weighted += static_cast<double>(number(p, 3, r));
    }
    const auto w = static_cast<double>(targets.weight(y));
    if (!d.logits) return -w * picked;
    double value = (1 - d.smoothing) * w * (all_lse - picked);
    if (d.smoothing > 0)
      value += d.smoothing / static_cast<double>(d.classes) * (targets.total_weight() * all_lse - weighted);
    return value;
  }
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t first = block.index() * kSumPart;
    const std::int64_t last = first + kSumPart < rows ? first + kSumPart : rows;
    std::int64_t bad = rows;
    double sum = 0;
    double weights = 0;
    for (std::int64_t r = first + block.thread(); r < last; r += block.threads()) {
      const std::int64_t y = targets.of(r);
      const double all_lse = targets.d.logits ? lse_of(r) : 0.0;
      if (targets.d.logits) lse[r] = static_cast<W>(all_lse);
      double own = 0;
      if (targets.counts(y)) {
        own = loss(r, y, all_lse);
        sum += own;
        weights += static_cast<double>(targets.weight(y));
      } else if (y != targets.d.ignore && r < bad) {
        bad = r;
      }
      if (losses) losses[r] = convert<T>(static_cast<W>(own));
    }
    bad = block_reduce(block, bad, LowerRow());
    sum = block_reduce(block, sum, Plus<double>());
    weights = block_reduce(block, weights, Plus<double>());
    if (block.thread() != 0) return;
    if (block.count() == 1) {
      const Ptr<const std::int64_t> target(targets.d.target);
      return write_sums(sums, bad < rows ? target + bad : Ptr<const std::int64_t>(), sum, weights);
    }
    partial[block.index()] = static_cast<double>(bad);
    partial[block.count() + block.index()] = sum;
    partial[2 * block.count() + block.index()] = weights;
  }
};

// One block: the four sums.
struct JoinLosses : Cooperative {
  Ptr<const double> partial;
  std::int64_t n;
  std::int64_t rows;
  Ptr<const std::int64_t> target;
  Ptr<double> sums;
  TS_DEVICE void operator()(const Block& block) const {
    auto bad = static_cast<double>(rows);
    double sum = 0;
    double weights = 0;
    for (std::int64_t i = block.thread(); i < n; i += block.threads()) {
      bad = partial[i] < bad ? partial[i] : bad;
      sum += partial[n + i];
      weights += partial[2 * n + i];
    }
    bad = block_reduce(block, bad, [](double a, double b) { return a < b ? a : b; });
    sum = block_reduce(block, sum, Plus<double>());
    weights = block_reduce(block, weights, Plus<double>());
    if (block.thread() != 0) return;
    const auto row = static_cast<std::int64_t>(bad);
    write_sums(sums, row < rows ? target + row : Ptr<const std::int64_t>(), sum, weights);
  }
};

// The loss of all ranks' sums [ranks, 4], or NaN for the losses that are there.
template <class T>
struct ClassTotal : Independent {
  std::int64_t numel;
  Ptr<T> loss;
  Ptr<double> total;
  Ptr<const double> sums;
  std::int64_t ranks;
  bool mean;
  bool each;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i > 0 && i >= numel) return;
    double faults = 0;
    double value = 0;
    double weight = 0;
    for (std::int64_t p = 0; p < ranks; ++p) {
      faults += sums[4 * p];
      value += sums[4 * p + 2];
      weight += sums[4 * p + 3];
    }
    if (i == 0) *total = mean ? weight : 1.0;
    if (i >= numel || (each && faults == 0)) return;
    if (mean) value /= weight;
    loss[i] = convert<T>(faults == 0 ? value : std::numeric_limits<double>::quiet_NaN());
  }
};

template <class W>
struct SumWeights : Cooperative {
  Ptr<const W> weight;
  std::int64_t n;
  Ptr<double> out;
  TS_DEVICE void operator()(const Block& block) const {
    double sum = 0;
    for (std::int64_t i = block.thread(); i < n; i += block.threads()) sum += static_cast<double>(weight[i]);
    sum = block_reduce(block, sum, Plus<double>());
    if (block.thread() == 0) *out = sum;
  }
};

template <class T>
struct ClassGradient : Independent {
  using W = Wide<T>;
  Targets<W> targets;
  std::int64_t numel;
  Ptr<T> dx;
  Ptr<const T> x;
  Ptr<const T> dy;
  bool dy_each;
  Ptr<const W> lse;
  Ptr<const double> total;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= numel) return;
    const ClassElements& d = targets.d;
    const std::int64_t s = i % d.space;
    const std::int64_t c = i / d.space % d.here;
    const std::int64_t r = i / d.space / d.here * d.space + s;
    const std::int64_t y = targets.of(r);
    W at_target = 0;
    W a = 0;
    W b = 0;
    if (targets.counts(y)) {
      const double g = static_cast<double>(load(dy[dy_each ? r : 0])) / (total ? *total : 1.0);
      const double own = (1 - d.smoothing) * static_cast<double>(targets.weight(y));
      const double spread = d.smoothing > 0 ? d.smoothing / static_cast<double>(d.classes) : 0.0;
      at_target = static_cast<W>(g * own);
      a = static_cast<W>(g * (spread > 0 ? own + spread * targets.total_weight() : own));
      b = static_cast<W>(g * spread);
    }
    W value = 0;
    if (d.logits) value = math::vexp_flushed(load(x[i]) - lse[r]) * a;
    // Without smoothing a class that is no target counts for nothing, whatever its weight (it may be
    // infinite).
    if (d.logits && d.smoothing > 0) value -= b * targets.weight_here(c);
    if (targets.place(y) == c) value -= at_target;
    dx[i] = convert<T>(value);
  }
};

}  // namespace

void sum_weights(const void* weight, std::int64_t n, DType dtype, double* sum, StreamHandle stream) {
  const LaunchShape shape{1, threads_for_row(n), kReduceBytes};
  if (dtype == DType::F64) {
    launch(SumWeights<double>{{}, static_cast<const double*>(weight), n, sum}, shape, stream);
  } else {
    launch(SumWeights<float>{{}, static_cast<const float*>(weight), n, sum}, shape, stream);
  }
}

void class_statistics(const ClassElements& d, void* stats, StreamHandle stream) {
  const std::int64_t rows = d.rows();
  const std::int64_t n = d.logits ? d.here : 1;
  dispatch_floating(d.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_team(works_alone(rows, n, d.space > 1), [&](auto team) {
      launch(
          ClassRow<decltype(team), T>{
              {}, {d}, rows, static_cast<const T*>(d.x), static_cast<Wide<T>*>(stats)},
          shape_for(team, rows, n), stream);
    });
  });
}

void class_losses(const ClassLosses& l, double* partial, StreamHandle stream) {
  const std::int64_t rows = l.data.rows();
  const std::int64_t blocks = sum_parts(rows);
  dispatch_floating(l.data.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    LossRows<T> kernel;
    kernel.targets = {l.data};
    kernel.rows = rows;
    kernel.ranks = l.ranks;
    kernel.parts = static_cast<const W*>(l.parts);
    kernel.losses = static_cast<T*>(l.losses);
    kernel.lse = static_cast<W*>(l.lse);
    kernel.partial = partial;
    kernel.sums = l.sums;
    launch(kernel, {blocks, threads_for_row(rows), kReduceBytes}, stream);
  });
  if (blocks == 1) return;
  launch(JoinLosses{{}, partial, blocks, rows, l.data.target, l.sums},
         {1, threads_for_row(blocks), kReduceBytes}, stream);
}

void class_total(const ClassTotals& t, StreamHandle stream) {
  dispatch_floating(t.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ClassTotal<T>{{}, t.numel, static_cast<T*>(t.loss), t.total, t.sums, t.ranks, t.mean, t.each},
           one_each(t.numel > 0 ? t.numel : 1), stream);
  });
}

void class_gradients(const ClassGradients& g, StreamHandle stream) {
  const std::int64_t numel = g.data.rows() * g.data.here;
  dispatch_floating(g.data.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    ClassGradient<T> kernel;
    kernel.targets = {g.data};
    kernel.numel = numel;
    kernel.dx = static_cast<T*>(g.dx);
    kernel.x = static_cast<const T*>(g.data.x);
    kernel.dy = static_cast<const T*>(g.dy);
    kernel.dy_each = g.dy_each;
    kernel.lse = static_cast<const W*>(g.lse);
    kernel.total = g.total;
    launch(kernel, one_each(numel), stream);
  });
}

}  // namespace tessera::cuda
