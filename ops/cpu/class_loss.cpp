#include "ops/cpu/class_loss.h"

#include <cmath>
#include <limits>

#include "ops/cpu/parallel.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/simd/loss_table.h"
#include "ops/cpu/workspace.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kPositions = 512;  // of one sample that are worked on together

// Neighbouring positions of one sample: rows of x that lie side by side, a class apart.
struct Positions {
  std::int64_t sample, first, count;
};

template <class Body>
void for_positions(const Array& x, double flops, const Body& body) {
  const std::int64_t space = x.size(2);
  if (x.size(0) == 0 || space == 0) return;
  const std::int64_t cuts = ceil_div(space, kPositions);
  const std::int64_t all = x.size(0) * cuts;
  const std::int64_t each = std::max<std::int64_t>(1, x.size(1) * std::min(space, kPositions));
  const std::int64_t group = std::max<std::int64_t>(1, 16384 / each);
  const int threads = threads_for(flops * static_cast<double>(x.numel()));
  parallel_for(ceil_div(all, group), threads, [&](std::int64_t piece) {
    for (std::int64_t i = piece * group; i < std::min(all, (piece + 1) * group); ++i) {
      const std::int64_t first = i % cuts * kPositions;
      body(Positions{i / cuts, first, std::min(kPositions, space - first)});
    }
  });
}

// A target's place among the classes of x, or -1.
class Places {
 public:
  explicit Places(const ClassData& d) : d_(d) {}
  bool counts(std::int64_t target) const {
    return target != d_.kind.ignore && target >= 0 && target < d_.kind.classes;
  }
  std::int64_t of(std::int64_t target) const {
    if (!counts(target)) return -1;
    return d_.here.empty() ? target : d_.here[static_cast<std::size_t>(target)];
  }

 private:
  const ClassData& d_;
};

template <class T>
T weight_of(const Array& weight, std::int64_t c) {
  return weight.defined() ? weight.data<T>()[c] : T(1);
}
template <class T>
double total_weight(const ClassData& d) {
  if (!d.weight.defined()) return static_cast<double>(d.kind.classes);
  double sum = 0;
  for (std::int64_t c = 0; c < d.kind.classes; ++c) sum += static_cast<double>(d.weight.data<T>()[c]);
  return sum;
}

// What a row without any finite number is shifted by.
template <class T>
T shift_of(T top) {
  return top == -std::numeric_limits<T>::infinity() ? T(0) : top;
}

// ---- statistics

template <class S>
class RowStatistics {
 public:
  using T = Compute<S>;
  explicit RowStatistics(const ClassRowsArgs& args)
      : d_(args.data), n_(args.data.x.size(1)), space_(args.data.x.size(2)), out_(args.stats) {}

  void operator()(const Positions& p) const {
    if (d_.kind.logits) n_ > 0 && space_ == 1 ? one_row(p) : side_by_side(p);
    picked(p);
  }

 private:
  std::int64_t at(const Positions& p) const { return p.sample * space_ + p.first; }
  T* term(std::int64_t i, const Positions& p) const {
    return out_.data<T>() + i * d_.x.size(0) * space_ + at(p);
  }
  const S* numbers(const Positions& p, std::int64_t c) const {
    return d_.x.data<S>() + (p.sample * n_ + c) * space_ + p.first;
  }

  void one_row(const Positions& p) const {
    T* buffer = std::is_same_v<S, T> ? nullptr : Workspace::begin().take<T>(n_);
    const T* x = row_in<S>(numbers(p, 0), 1, n_, buffer);
    *term(0, p) = k_.row_top(x, n_);
    *term(1, p) = k_.row_exp(x, n_, shift_of(*term(0, p)));
    if (d_.kind.terms() < 4) return;
    T& sum = *term(3, p);
    sum = T(0);
    for (std::int64_t c = 0; c < n_; ++c) sum += weight_of<T>(d_.weight_here, c) * x[c];
  }

  void side_by_side(const Positions& p) const {
    Workspace& scratch = Workspace::begin();
    T* buffer = std::is_same_v<S, T> ? nullptr : scratch.take<T>(p.count);
    T* shift = scratch.take<T>(p.count);
    T* top = term(0, p);
    T* sum = term(1, p);
    std::fill_n(top, p.count, -std::numeric_limits<T>::infinity());
    std::fill_n(sum, p.count, T(0));
    for (std::int64_t c = 0; c < n_; ++c)
      k_.raise(top, row_in<S>(numbers(p, c), 1, p.count, buffer), p.count);
    for (std::int64_t i = 0; i < p.count; ++i) shift[i] = shift_of(top[i]);
    const bool smooth = d_.kind.terms() == 4;
    if (smooth) std::fill_n(term(3, p), p.count, T(0));
    for (std::int64_t c = 0; c < n_; ++c) {
      const T* x = row_in<S>(numbers(p, c), 1, p.count, buffer);
      k_.add_exp(sum, x, shift, p.count);
      if (smooth) k_.add_scaled(term(3, p), x, p.count, weight_of<T>(d_.weight_here, c));
    }
  }

  void picked(const Positions& p) const {
    const Places places(d_);
    const std::int64_t* target = d_.target.data<std::int64_t>() + at(p);
    T* out = term(d_.kind.logits ? 2 : 0, p);
    for (std::int64_t i = 0; i < p.count; ++i) {
      const std::int64_t c = places.of(target[i]);
      out[i] = c < 0 ? T(0) : static_cast<T>(numbers(p, c)[i]);
    }
  }

  const ClassData& d_;
  std::int64_t n_, space_;
  const Array& out_;
  const LossBlocks<T>& k_ = blocks_of<T>(loss_table());
};

// ---- losses

// One row's numbers over all parts.
template <class T>
struct Row {
  double lse = 0, picked = 0, weighted = 0;
};

template <class T>
class PartRows {
 public:
  PartRows(const Array& parts, const ClassLossKind& kind)
      : p_(parts.data<T>()), parts_(parts.size(0)), rows_(parts.size(2) * parts.size(3)), kind_(kind) {}
  std::int64_t rows() const { return rows_; }

  Row<T> at(std::int64_t r) const {
    Row<T> row;
    for (std::int64_t p = 0; p < parts_; ++p) {
      row.picked += static_cast<double>(number(p, kind_.logits ? 2 : 0, r));
      if (kind_.terms() == 4) row.weighted += static_cast<double>(number(p, 3, r));
    }
    if (!kind_.logits) return row;
    T top = -std::numeric_limits<T>::infinity();
    for (std::int64_t p = 0; p < parts_; ++p) {
      const T t = number(p, 0, r);
      if (t > top) top = t;
    }
    const double shift = static_cast<double>(shift_of(top));
    double sum = 0;
    for (std::int64_t p = 0; p < parts_; ++p) {
      const T own = number(p, 0, r);
      const double factor = own == top ? 1.0 : std::exp(static_cast<double>(own) - shift);
      sum += static_cast<double>(number(p, 1, r)) * factor;
    }
    row.lse = shift + std::log(sum);
    return row;
  }

 private:
  T number(std::int64_t part, std::int64_t term, std::int64_t r) const {
    return p_[(part * kind_.terms() + term) * rows_ + r];
  }
  const T* p_;
  std::int64_t parts_, rows_;
  const ClassLossKind& kind_;
};

// Flag and number of a target that is no class, sum of losses, sum of weights.
using LossSums = std::array<double, 4>;

template <class S>
class Losses {
 public:
  using T = Compute<S>;
  explicit Losses(const ClassLossArgs& args)
      : a_(args), d_(args.data), rows_(args.parts, args.data.kind), all_(total_weight<T>(args.data)) {}

  void operator()() const {
    constexpr std::int64_t kRows = 4096;
    const std::int64_t pieces = ceil_div(rows_.rows(), kRows);
    std::vector<LossSums> partial(static_cast<std::size_t>(pieces), LossSums{});
    const int threads = threads_for(40.0 * static_cast<double>(rows_.rows()));
    parallel_for(pieces, threads, [&](std::int64_t piece) {
      for (std::int64_t r = piece * kRows; r < std::min(rows_.rows(), (piece + 1) * kRows); ++r)
        row(r, partial[static_cast<std::size_t>(piece)]);
    });
    LossSums total{};
    for (const LossSums& s : partial) {
      if (total[0] == 0) std::copy_n(s.begin(), 2, total.begin());
      total[2] += s[2];
      total[3] += s[3];
    }
    std::copy(total.begin(), total.end(), a_.sums.data<double>());
  }

 private:
  void row(std::int64_t r, LossSums& sums) const {
    const std::int64_t y = d_.target.data<std::int64_t>()[r];
    const double smoothing = d_.kind.smoothing;
    const Row<T> row = rows_.at(r);
    double loss = 0;
    if (d_.kind.logits) a_.lse.data<T>()[r] = static_cast<T>(row.lse);
    if (Places(d_).counts(y)) {
      const double w = static_cast<double>(weight_of<T>(d_.weight, y));
      loss = d_.kind.logits ? (1 - smoothing) * w * (row.lse - row.picked) : -w * row.picked;
      if (smoothing > 0)
        loss += smoothing / static_cast<double>(d_.kind.classes) * (all_ * row.lse - row.weighted);
      sums[2] += loss;
      sums[3] += w;
    } else if (y != d_.kind.ignore && sums[0] == 0) {
      sums[0] = 1;
      sums[1] = static_cast<double>(y);
    }
    if (a_.losses.defined()) a_.losses.data<S>()[r] = static_cast<S>(static_cast<T>(loss));
  }

  const ClassLossArgs& a_;
  const ClassData& d_;
  PartRows<T> rows_;
  double all_;
};

// ---- gradients

template <class S>
class Gradient {
 public:
  using T = Compute<S>;
  explicit Gradient(const ClassGradientArgs& args)
      : a_(args), d_(args.data), n_(args.data.x.size(1)), space_(args.data.x.size(2)) {
    total_ = args.total.defined() ? *args.total.data<double>() : 1.0;
    spread_ = d_.kind.smoothing > 0 ? d_.kind.smoothing / static_cast<double>(d_.kind.classes) : 0.0;
    if (spread_ > 0) all_ = total_weight<T>(d_);
  }

  void operator()(const Positions& p) const {
    Workspace& scratch = Workspace::begin();
    T* at_target = scratch.take<T>(p.count);
    T* a = scratch.take<T>(p.count);
    T* b = scratch.take<T>(p.count);
    factors(p, at_target, a, b);
    if (!d_.kind.logits) {
      for (std::int64_t c = 0; c < n_; ++c) std::fill_n(out(p, c), p.count, S());
    } else if (space_ == 1) {
      one_row(p, a[0], b[0], scratch);
    } else {
      side_by_side(p, a, b, scratch);
    }
    const Places places(d_);
    const std::int64_t* target = d_.target.data<std::int64_t>() + position(p);
    for (std::int64_t i = 0; i < p.count; ++i) {
      const std::int64_t c = places.of(target[i]);
      if (c < 0) continue;
      S& dx = out(p, c)[i];
      dx = static_cast<S>(static_cast<T>(dx) - at_target[i]);
    }
  }

 private:
  std::int64_t position(const Positions& p) const { return p.sample * space_ + p.first; }
  S* out(const Positions& p, std::int64_t c) const {
    return a_.dx.data<S>() + (p.sample * n_ + c) * space_ + p.first;
  }
  const S* in(const Positions& p, std::int64_t c) const {
    return d_.x.data<S>() + (p.sample * n_ + c) * space_ + p.first;
  }

  void factors(const Positions& p, T* at_target, T* a, T* b) const {
    const Places places(d_);
    const std::int64_t* target = d_.target.data<std::int64_t>() + position(p);
    const S* dy = a_.dy.data<S>();
    const bool each = a_.dy.numel() != 1 || d_.target.numel() == 1;
    for (std::int64_t i = 0; i < p.count; ++i) {
      at_target[i] = a[i] = b[i] = T(0);
      if (!places.counts(target[i])) continue;
      const double g = static_cast<double>(static_cast<T>(dy[each ? position(p) + i : 0])) / total_;
      const double own = (1 - d_.kind.smoothing) * static_cast<double>(weight_of<T>(d_.weight, target[i]));
      at_target[i] = static_cast<T>(g * own);
      a[i] = static_cast<T>(g * (own + spread_ * all_));
      b[i] = static_cast<T>(g * spread_);
    }
  }

  void one_row(const Positions& p, T a, T b, Workspace& scratch) const {
    T* given = std::is_same_v<S, T> ? nullptr : scratch.take<T>(n_);
    T* made = std::is_same_v<S, T> ? nullptr : scratch.take<T>(n_);
    T* dx = row_out<S>(out(p, 0), 1, made);
    const T numbers[3] = {a_.lse.data<T>()[position(p)], a, b};
    const Array weights = spread_weight();
    const T* weight = weights.defined() ? weights.data<T>() : nullptr;
    k_.row_gradient(dx, row_in<S>(in(p, 0), 1, n_, given), weight, n_, numbers);
    row_done<S>(out(p, 0), 1, n_, dx);
  }

  void side_by_side(const Positions& p, const T* a, const T* b, Workspace& scratch) const {
    T* given = std::is_same_v<S, T> ? nullptr : scratch.take<T>(p.count);
    T* made = std::is_same_v<S, T> ? nullptr : scratch.take<T>(p.count);
    const T* lse = a_.lse.data<T>() + position(p);
    for (std::int64_t c = 0; c < n_; ++c) {
      T* dx = row_out<S>(out(p, c), 1, made);
      const T* x = row_in<S>(in(p, c), 1, p.count, given);
      k_.class_gradient(dx, x, lse, a, b, p.count, weight_of<T>(spread_weight(), c));
      row_done<S>(out(p, c), 1, p.count, dx);
    }
  }

  // Without smoothing a class that is no target counts for nothing, whatever its weight (it may be infinite).
  Array spread_weight() const { return spread_ > 0 ? d_.weight_here : Array(); }

  const ClassGradientArgs& a_;
  const ClassData& d_;
  std::int64_t n_, space_;
  double total_ = 1, spread_ = 0, all_ = 0;
  const LossBlocks<T>& k_ = blocks_of<T>(loss_table());
};

void check(const char* op, const ClassData& d) {
  TS_CHECK(d.x.dim() == 3 && d.x.is_contiguous() && is_floating(d.x.dtype()) &&
               d.target.dtype() == DType::I64 && d.target.is_contiguous() &&
               d.target.numel() == d.x.size(0) * d.x.size(2),
           op, "x {} and targets {} do not fit", d.x.sizes().str(), d.target.sizes().str());
}

}  // namespace

void class_rows(const ClassRowsArgs& args) {
  check("class_rows", args.data);
  dispatch_floating(args.data.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    const RowStatistics<S> statistics(args);
    for_positions(args.data.x, 10.0, statistics);
  });
}

void class_loss(const ClassLossArgs& args) {
  check("class_loss", args.data);
  dispatch_floating(args.data.x.dtype(), [&](auto tag) { Losses<typename decltype(tag)::type>{args}(); });
}

void class_total(const ClassTotalArgs& args) {
  LossSums all{};
  const double* sums = args.sums.data<double>();
  for (std::int64_t p = 0; p < args.sums.size(0); ++p)
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += sums[4 * p + static_cast<std::int64_t>(i)];
  const bool fault = all[0] != 0;
  double loss = args.mean ? all[2] / all[3] : all[2];
  if (fault) loss = std::numeric_limits<double>::quiet_NaN();
  *args.total.data<double>() = args.mean ? all[3] : 1.0;
  if (args.each && !fault) return;
  dispatch_floating(args.loss.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    std::fill_n(args.loss.data<S>(), args.loss.numel(), static_cast<S>(loss));
  });
}

void class_loss_gradient(const ClassGradientArgs& args) {
  check("class_loss_gradient", args.data);
  dispatch_floating(args.data.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    const Gradient<S> gradient(args);
    for_positions(args.data.x, 12.0, gradient);
  });
}

}  // namespace tessera::cpu
