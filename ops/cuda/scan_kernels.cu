#include "ops/cuda/scan_kernels.h"

#include <limits>

#include "ops/cuda/team.h"
#include "ops/reduce/extremum_key.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

template <class T>
using Running = std::conditional_t<is_floating(dtype_of<T>()), double, std::int64_t>;
template <class T>
using Result = std::conditional_t<is_floating(dtype_of<T>()), T, std::int64_t>;

// Integers wrap around.
template <class A>
struct Added {
  TS_DEVICE A operator()(A a, A b) const {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    else
      return a + b;
  }
};

// One piece of one row, one column.
struct ScanPlace {
  std::int64_t start;  // element
  std::int64_t n;
  TS_DEVICE ScanPlace(const ScanData& d, std::int64_t row) {
    const std::int64_t b = row % d.inner;
    const std::int64_t a = row / d.inner % d.outer;
    const std::int64_t piece = row / d.inner / d.outer;
    const std::int64_t first = d.firsts[piece];
    n = d.firsts[piece + 1] - first;
    start = (a * d.n + first) * d.inner + b;
  }
};

template <class Team, class T>
struct PieceSum : Team::Kind {
  ScanData data;
  std::int64_t rows;
  Ptr<const T> x;
  Ptr<Running<T>> sums;
  TS_DEVICE void operator()(const Block& block) const {
    using A = Running<T>;
    const Team team(block);
    if (team.row() >= rows) return;
    const ScanPlace p(data, team.row());
    A sum = 0;
    for (std::int64_t i = team.first(); i < p.n; i += team.step())
      sum = Added<A>()(sum, static_cast<A>(load(x[p.start + i * data.inner])));
    sum = team.reduce(sum, Added<A>());
    if (team.writes()) sums[team.row()] = sum;
  }
};

// A thread a column: columns lie side by side.
template <class T>
struct RunDown : Independent {
  ScanData data;
  std::int64_t rows;
  Ptr<const T> x;
  Ptr<Result<T>> out;
  Ptr<const Running<T>> starts;
  bool reverse;
  TS_DEVICE void operator()(const Block& block) const {
    using A = Running<T>;
    const std::int64_t row = global_thread(block);
    if (row >= rows) return;
    const ScanPlace p(data, row);
    A sum = starts ? starts[row] : A(0);
    for (std::int64_t step = 0; step < p.n; ++step) {
      const std::int64_t at = p.start + (reverse ? p.n - 1 - step : step) * data.inner;
      sum = Added<A>()(sum, static_cast<A>(load(x[at])));
      out[at] = convert<Result<T>>(sum);
    }
  }
};

// A block a column: tile after tile of as many elements as there are threads.
template <class T>
struct RunTiles : Cooperative {
  ScanData data;
  Ptr<const T> x;
  Ptr<Result<T>> out;
  Ptr<const Running<T>> starts;
  bool reverse;
  TS_DEVICE void operator()(const Block& block) const {
    using A = Running<T>;
    const ScanPlace p(data, block.index());
    A* tile = block.shared<A>();
    A before = starts ? starts[block.index()] : A(0);
    const int own = block.thread();
    for (std::int64_t first = 0; first < p.n; first += block.threads()) {
      const std::int64_t i = first + own;
      const std::int64_t at = p.start + (reverse ? p.n - 1 - i : i) * data.inner;
      A sum = i < p.n ? static_cast<A>(load(x[at])) : A(0);
      for (int reach = 1; reach < block.threads(); reach *= 2) {
        tile[own] = sum;
        block.sync();
        if (own >= reach) sum = Added<A>()(tile[own - reach], sum);
        block.sync();
      }
      sum = Added<A>()(before, sum);
      tile[own] = sum;
      block.sync();
      before = tile[block.threads() - 1];
      block.sync();
      if (i < p.n) out[at] = convert<Result<T>>(sum);
    }
  }
};

// The best of all threads; pairs travel through shared memory.
TS_DEVICE ExtremumCandidate best_of_block(const Block& block, ExtremumCandidate own) {
  auto* keys = block.shared<std::int64_t>();
  std::int64_t* indices = keys + block.threads();
  for (int half = block.threads() / 2; half > 0; half /= 2) {
    keys[block.thread()] = own.key;
    indices[block.thread()] = own.index;
    block.sync();
    if (block.thread() < half) own.meet(keys[block.thread() + half], indices[block.thread() + half]);
    block.sync();
  }
  return own;  // of thread 0: the best
}
template <class Team>
TS_DEVICE ExtremumCandidate best_of(const Block& block, const ExtremumCandidate& own) {
  if constexpr (std::is_same_v<Team, Together>) return best_of_block(block, own);
  return own;
}
LaunchShape candidates_shape(Alone team, std::int64_t rows, std::int64_t n) {
  return shape_for(team, rows, n);
}
LaunchShape candidates_shape(Together, std::int64_t rows, std::int64_t n) {
  const int threads = threads_for_row(n);  // a power of two
  return {rows, threads, threads * 16};
}

template <class Team, class T>
struct ExtremumRow : Team::Kind {
  Extrema e;
  Ptr<const T> x;
  TS_DEVICE void operator()(const Block& block) const {
    const Team team(block);
    if (team.row() >= e.outer * e.inner) return;
    const std::int64_t a = team.row() / e.inner;
    const std::int64_t b = team.row() - a * e.inner;
    const std::int64_t offset = e.offsets[a];
    ExtremumCandidate best{std::numeric_limits<ExtremumKey<T>>::min(), e.none};
    for (std::int64_t i = team.first(); i < e.n; i += team.step())
      best.meet(extremum_key(static_cast<T>(load(x[(a * e.n + i) * e.inner + b])), e.largest),
                e.positions[i] + offset);
    best = best_of<Team>(block, best);
    if (!team.writes()) return;
    Ptr<std::int64_t>(e.key)[team.row()] = best.key;
    Ptr<std::int64_t>(e.index)[team.row()] = best.index;
  }
};

template <class Team>
struct MergeExtremaRow : Team::Kind {
  MergeExtrema m;
  TS_DEVICE void operator()(const Block& block) const {
    const Team team(block);
    if (team.row() >= m.rows) return;
    const Ptr<const std::int64_t> keys(m.keys);
    const Ptr<const std::int64_t> indices(m.indices);
    // Threads beyond the parts begin with the first one as well.
    ExtremumCandidate best{keys[team.row()], indices[team.row()]};
    for (std::int64_t p = team.first(); p < m.parts; p += team.step())
      best.meet(keys[p * m.rows + team.row()], indices[p * m.rows + team.row()]);
    best = best_of<Team>(block, best);
    if (!team.writes()) return;
    Ptr<std::int64_t>(m.key)[team.row()] = best.key;
    Ptr<std::int64_t>(m.index)[team.row()] = best.index;
  }
};

template <class T>
struct MergeMomentsRow : Independent {
  MergeMoments m;
  Ptr<const T> from;
  Ptr<T> mean;
  Ptr<T> rest;
  Ptr<T> m2;
  TS_DEVICE double count(std::int64_t i) const {
    return m.more != nullptr ? Ptr<const double>(m.more)[i] : m.few[i];
  }
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t r = global_thread(block);
    if (r >= m.rows) return;
    double n = 0;
    double middle = 0;
    double squares = 0;
    for (std::int64_t p = 0; p < m.parts; ++p) {
      const double own = count(p * m.kinds + r % m.kinds);
      if (own == 0) continue;
      const Ptr<const T> part = from + p * 3 * m.rows;
      const double here = value(part[r]) + value(part[m.rows + r]);
      const double delta = here - middle;
      const double total = n + own;
      const double share = own / total;                       // one division: two spill registers
      middle += delta - delta == 0.0 ? delta * share : here;  // what is infinite stays so
      squares += value(part[2 * m.rows + r]) + delta * delta * n * share;
      n = total;
    }
    const T head = convert<T>(middle);
    mean[r] = head;
    rest[r] = convert<T>(middle - middle == 0.0 ? middle - value(head) : 0.0);
    m2[r] = convert<T>(squares);
  }
  TS_DEVICE static double value(const T& v) { return static_cast<double>(load(v)); }
};

}  // namespace

void piece_sums(const ScanData& d, void* sums, StreamHandle stream) {
  dispatch(d.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_team(works_alone(d.rows(), d.longest, d.inner > 1), [&](auto team) {
      launch(
          PieceSum<decltype(team), T>{
              {}, d, d.rows(), static_cast<const T*>(d.x.data), static_cast<Running<T>*>(sums)},
          shape_for(team, d.rows(), d.longest), stream);
    });
  });
}

void running_sums(const RunningSums& r, StreamHandle stream) {
  const ScanData& d = r.data;
  dispatch(d.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* x = static_cast<const T*>(d.x.data);
    auto* out = static_cast<Result<T>*>(r.out);
    const auto* starts = static_cast<const Running<T>*>(r.starts);
    if (works_alone(d.rows(), d.longest, d.inner > 1)) {
      launch(RunDown<T>{{}, d, d.rows(), x, out, starts, r.reverse}, one_each(d.rows(), 128), stream);
    } else {
      const int threads = threads_for_row(d.longest);
      launch(RunTiles<T>{{}, d, x, out, starts, r.reverse}, {d.rows(), threads, threads * 8}, stream);
    }
  });
}

void extrema(const Extrema& e, StreamHandle stream) {
  const std::int64_t rows = e.outer * e.inner;
  dispatch(e.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_team(works_alone(rows, e.n, e.inner > 1), [&](auto team) {
      launch(ExtremumRow<decltype(team), T>{{}, e, static_cast<const T*>(e.x.data)},
             candidates_shape(team, rows, e.n), stream);
    });
  });
}

void merge_extrema(const MergeExtrema& m, StreamHandle stream) {
  for_team(works_alone(m.rows, m.parts, true), [&](auto team) {
    launch(MergeExtremaRow<decltype(team)>{{}, m}, candidates_shape(team, m.rows, m.parts), stream);
  });
}

void merge_moments(const MergeMoments& m, StreamHandle stream) {
  dispatch_floating(m.from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(MergeMomentsRow<T>{{},
                              m,
                              static_cast<const T*>(m.from.data),
                              static_cast<T*>(m.mean),
                              static_cast<T*>(m.rest),
                              static_cast<T*>(m.m2)},
           one_each(m.rows, 128), stream);
  });
}

}  // namespace tessera::cuda
