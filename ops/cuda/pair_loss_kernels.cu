#include <type_traits>
#include <utility>

#include "ops/cuda/device_math.h"
#include "ops/cuda/loss_kernels.h"
#include "runtime/cuda/block_reduce.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

using cpu::PairLoss;
using cpu::PairPart;

constexpr int kThreads = 256;
constexpr int kParts = static_cast<int>(PairPart::kCount);

// f(constant) for the loss and part with that number: the choice is the same for all threads.
template <std::size_t... I, class F>
TS_DEVICE void choose(std::size_t which, std::index_sequence<I...>, const F& f) {
  (void)((which == I && (f(std::integral_constant<std::size_t, I>{}), true)) || ...);
}

template <class T>
struct PairReader {
  Walk<4> walk;
  Ptr<const T> x;
  Ptr<const T> target;
  Ptr<const T> positive;
  std::size_t which;
  Wide<T> alpha;
  TS_DEVICE Wide<T> at(std::int64_t i, std::int64_t (&offsets)[4]) const {
    using W = Wide<T>;
    walk.offsets(i, offsets);
    const W v = load(x[offsets[1]]);
    const W t = load(target[offsets[2]]);
    const W p = positive ? static_cast<W>(load(positive[offsets[3]])) : W(1);
    W result = 0;
    constexpr auto kAll = static_cast<std::size_t>(PairLoss::kCount) * kParts;
    choose(which, std::make_index_sequence<kAll>{}, [&](auto constant) {
      constexpr std::size_t k = decltype(constant)::value;
      result = math::pair_element<static_cast<PairLoss>(k / kParts), static_cast<PairPart>(k % kParts)>(
          v, t, p, alpha);
    });
    return result;
  }
};

template <class T>
struct PairMap : Independent {
  PairReader<T> pairs;
  Ptr<T> out;
  Ptr<const T> factor;
  double scale;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const std::int64_t i = global_thread(block);
    if (i >= pairs.walk.numel) return;
    std::int64_t offsets[4];
    const W value = pairs.at(i, offsets);
    const double all = scale * (factor ? static_cast<double>(load(*factor)) : 1.0);
    out[offsets[0]] = convert<T>(static_cast<W>(all) * value);
  }
};

template <class T>
struct PairSums : Cooperative {
  PairReader<T> pairs;
  Ptr<double> partial;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t first = block.index() * kSumPart;
    const std::int64_t last = first + kSumPart < pairs.walk.numel ? first + kSumPart : pairs.walk.numel;
    double sum = 0;
    std::int64_t offsets[4];
    for (std::int64_t i = first + block.thread(); i < last; i += block.threads())
      sum += static_cast<double>(pairs.at(i, offsets));
    sum = block_reduce(block, sum, Plus<double>());
    if (block.thread() == 0) partial[block.index()] = sum;
  }
};

// One block: out = scale · the sum of the parts.
template <class T>
struct SumOfParts : Cooperative {
  Ptr<const double> partial;
  std::int64_t n;
  double scale;
  Ptr<T> out;
  TS_DEVICE void operator()(const Block& block) const {
    double sum = 0;
    for (std::int64_t i = block.thread(); i < n; i += block.threads()) sum += partial[i];
    sum = block_reduce(block, sum, Plus<double>());
    if (block.thread() == 0) *out = convert<T>(static_cast<Wide<T>>(sum * scale));
  }
};

struct EitherFault {
  TS_DEVICE int operator()(int a, int b) const { return a | b; }
};

// Bit 0: an x is outside; bit 1: a target is.
template <class T>
struct RangeFaults : Cooperative {
  Walk<2> walk;
  Ptr<const T> x;
  Ptr<const T> target;
  Ptr<double> partial;
  TS_DEVICE static bool outside(const T& value) {
    const Wide<T> v = load(value);
    return !(v >= 0 && v <= 1);
  }
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t first = block.index() * kSumPart;
    const std::int64_t last = first + kSumPart < walk.numel ? first + kSumPart : walk.numel;
    int fault = 0;
    std::int64_t at[2];
    for (std::int64_t i = first + block.thread(); i < last; i += block.threads()) {
      walk.offsets(i, at);
      fault |= (outside(x[at[0]]) ? 1 : 0) | (outside(target[at[1]]) ? 2 : 0);
    }
    fault = block_reduce(block, fault, EitherFault());
    if (block.thread() == 0) partial[block.index()] = fault;
  }
};
struct JoinFaults : Cooperative {
  Ptr<const double> partial;
  std::int64_t n;
  Ptr<double> out;
  TS_DEVICE void operator()(const Block& block) const {
    int fault = 0;
    for (std::int64_t i = block.thread(); i < n; i += block.threads()) fault |= static_cast<int>(partial[i]);
    fault = block_reduce(block, fault, EitherFault());
    if (block.thread() == 0) *out = (fault & 1) != 0 ? 1.0 : fault;
  }
};

template <class T>
PairReader<T> reader_of(const PairElements& p) {
  return {p.walk,
          static_cast<const T*>(p.x.data),
          static_cast<const T*>(p.target.data),
          static_cast<const T*>(p.positive),
          static_cast<std::size_t>(p.loss) * kParts + static_cast<std::size_t>(p.part),
          static_cast<Wide<T>>(p.alpha)};
}

}  // namespace

void pair_elements(const PairElements& p, StreamHandle stream) {
  dispatch_floating(p.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(
        PairMap<T>{
            {}, reader_of<T>(p), static_cast<T*>(p.out.data), static_cast<const T*>(p.factor), p.scale},
        one_each(p.walk.numel), stream);
  });
}

void pair_sum(const PairElements& p, double* partial, StreamHandle stream) {
  const std::int64_t parts = sum_parts(p.walk.numel);
  dispatch_floating(p.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(PairSums<T>{{}, reader_of<T>(p), partial}, {parts, kThreads, kReduceBytes}, stream);
    launch(SumOfParts<T>{{}, partial, parts, p.scale, static_cast<T*>(p.out.data)},
           {1, threads_for_row(parts), kReduceBytes}, stream);
  });
}

void unit_range(const UnitRange& u, double* partial, StreamHandle stream) {
  const std::int64_t parts = sum_parts(u.walk.numel);
  dispatch_floating(u.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(
        RangeFaults<T>{
            {}, u.walk, static_cast<const T*>(u.x.data), static_cast<const T*>(u.target.data), partial},
        {parts, kThreads, kReduceBytes}, stream);
  });
  launch(JoinFaults{{}, partial, parts, u.fault}, {1, threads_for_row(parts), kReduceBytes}, stream);
}

}  // namespace tessera::cuda
