#include "ops/window/window_buffer.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "autograd/adjoints.h"
#include "ops/cpu/conv.h"
#include "ops/memory_order.h"
#include "runtime/copy.h"

namespace tessera {

namespace {

constexpr std::int64_t kFramesFrom = std::int64_t{1} << 16;  // measured: edges cost less than a copy

std::atomic<std::int64_t>& least_elements() {
  static std::atomic<std::int64_t> value{kFramesFrom};
  return value;
}

// A buffer that a rank fills from its own elements alone. Where its boxes are all combinations of a few
// segments of each dim (a map with wrapped borders), they are filled dim by dim: the elements as they lie,
// then the borders of one dim after the other out of what is there already. 7 copies in 3-D instead of 27.
class DimByDim {
 public:
  DimByDim() = default;
  explicit DimByDim(const ExchangePlan& plan) {
    const std::vector<ExchangePiece>& pieces = plan.own.pieces;
    const int dims = plan.from_sizes.size();
    if (!plan.local_only() || !plan.covers || pieces.size() < 2) return;
    std::vector<std::vector<Run>> segments(static_cast<std::size_t>(dims));
    std::size_t combinations = 1;
    Dims body;  // where the elements as they lie begin
    for (int d = 0; d < dims; ++d) {
      std::vector<Run>& list = segments[static_cast<std::size_t>(d)];
      for (const ExchangePiece& p : pieces) add_once(list, {p.from[d], p.to[d], p.extent[d]});
      combinations *= list.size();
      const auto whole = std::find_if(list.begin(), list.end(), [&](const Run& s) {
        return s.from == 0 && s.count == plan.from_sizes[d];
      });
      if (whole == list.end()) return;
      body.push_back(whole->to);
      list.erase(whole);
    }
    if (combinations != pieces.size()) return;
    steps_ = {{Dims::filled(dims, 0), body, plan.from_sizes}};
    for (int d = 0; d < dims; ++d)
      for (const Run& s : segments[static_cast<std::size_t>(d)]) steps_.push_back(border(plan, body, d, s));
  }
  bool used() const { return !steps_.empty(); }

  void fill(const Array& buffer, const Array& x) const {
    copy_box(buffer, steps_[0].to, x, steps_[0].from, steps_[0].extent);
    for (std::size_t i = 1; i < steps_.size(); ++i)
      copy_box(buffer, steps_[i].to, buffer, steps_[i].from, steps_[i].extent);
  }
  // The adjoint: adds up in the buffer's own memory; the gradient of x is a view of it.
  Array fold(const Array& buffer) const {
    for (std::size_t i = steps_.size(); --i > 0;)
      add_into(buffer.box(steps_[i].from, steps_[i].extent), buffer.box(steps_[i].to, steps_[i].extent));
    return buffer.box(steps_[0].to, steps_[0].extent);
  }

 private:
  struct Run {
    std::int64_t from, to, count;
    bool operator==(const Run&) const = default;
  };
  static void add_once(std::vector<Run>& list, const Run& s) {
    if (std::find(list.begin(), list.end(), s) == list.end()) list.push_back(s);
  }
  // Within the buffer: dims before `dim` have their borders, those after it have not.
  static ExchangePiece border(const ExchangePlan& plan, const Dims& body, int dim, const Run& s) {
    ExchangePiece step{body, body, plan.from_sizes};
    for (int d = 0; d < dim; ++d) {
      step.from[d] = step.to[d] = 0;
      step.extent[d] = plan.to_sizes[d];
    }
    step.from[dim] = body[dim] + s.from;
    step.to[dim] = s.to;
    step.extent[dim] = s.count;
    return step;
  }
  std::vector<ExchangePiece> steps_;  // the first from x, the others within the buffer
};

// The same of small maps in one go, by a table: the element of the map's memory that each element of the
// buffer's is. For buffers that lie channels last, of maps that lie so or row-major.
class ByTable {
 public:
  ByTable(const DimByDim& copies, const ExchangePlan& plan) {
    constexpr std::int64_t kMost = 4096;
    const std::int64_t n = numel_of(plan.to_sizes);
    if (!copies.used() || plan.from_sizes.size() < 3 || n > kMost || numel_of(plan.from_sizes) == 0) return;
    buffer_strides_ = cpu::channels_last_strides(plan.to_sizes);
    for (const Dims& strides :
         {cpu::channels_last_strides(plan.from_sizes), contiguous_strides(plan.from_sizes)}) {
      const Array places = Array::empty_strided(plan.from_sizes, strides, DType::I32, Device::Cpu);
      auto* at = places.data<std::int32_t>();
      std::iota(at, at + places.numel(), 0);
      const Array filled = Array::empty_strided(plan.to_sizes, buffer_strides_, DType::I32, Device::Cpu);
      copies.fill(filled, places);
      const auto* from = filled.data<std::int32_t>();
      tables_.push_back({strides, {from, from + n}});
    }
  }
  // False: not of these.
  bool fill(const Array& buffer, const Array& x) const {
    if (tables_.empty() || buffer.device() != Device::Cpu || x.device() != Device::Cpu) return false;
    if (buffer.strides() != buffer_strides_ || buffer.dtype() != x.dtype()) return false;
    for (const Table& t : tables_) {
      if (t.strides != x.strides()) continue;
      switch (size_of(x.dtype())) {
        case 2:
          pick<std::uint16_t>(t, buffer, x);
          return true;
        case 4:
          pick<std::uint32_t>(t, buffer, x);
          return true;
        case 8:
          pick<std::uint64_t>(t, buffer, x);
          return true;
        default:
          return false;
      }
    }
    return false;
  }

 private:
  struct Table {
    Dims strides;  // of the map
    std::vector<std::int32_t> from;
  };
  template <class T>
  static void pick(const Table& t, const Array& buffer, const Array& x) {
    auto* to = static_cast<T*>(buffer.raw());
    const auto* from = static_cast<const T*>(x.raw());
    for (std::size_t i = 0; i < t.from.size(); ++i) to[i] = from[t.from[i]];
  }
  Dims buffer_strides_;
  std::vector<Table> tables_;
};

}  // namespace

struct WindowBuffer::Exchange {
  Exchange(BoxMap given, const Dims& message_order)
      : map(std::move(given)),
        order(message_order),
        neighbours(map.plan),
        by_dims(map.plan),
        by_table(by_dims, map.plan) {
    const ExchangePlan& e = map.plan;
    own_in_place = e.own.pieces.size() == 1 && e.own.pieces[0].extent == e.from_sizes;
    neighbours.own.pieces.clear();
    neighbours.own.elements = 0;
  }
  BoxMap map;
  Dims order;
  // The same without this rank's own elements, where these lie in the buffer in one piece: what comes back is
  // added to a view of them.
  ExchangePlan neighbours;
  bool own_in_place = false;
  DimByDim by_dims;
  ByTable by_table;
};

Dims message_order(int dims) {
  Dims order{0};
  for (int d = 2; d < dims; ++d) order.push_back(d);
  order.push_back(1);
  return order;
}

Array box_of_message(const Array& flat, std::int64_t at, const Dims& extent) {
  const Dims order = message_order(extent.size());
  Dims sizes, back = Dims::filled(order.size(), 0);
  for (int d = 0; d < order.size(); ++d) {
    sizes.push_back(extent[static_cast<int>(order[d])]);
    back[static_cast<int>(order[d])] = d;
  }
  return flat.slice(0, at, numel_of(sizes)).reshape(sizes).permute(back);
}

std::int64_t frames_from() { return least_elements().load(std::memory_order_relaxed); }
void set_frames_from(std::int64_t elements) { least_elements().store(elements, std::memory_order_relaxed); }

WindowBuffer::WindowBuffer(BoxMap map, const Dims& order)
    : exchange_(std::make_shared<Exchange>(std::move(map), order)) {}

const BoxMap* WindowBuffer::map() const { return exchange_ ? &exchange_->map : nullptr; }

Dims WindowBuffer::buffer_sizes(const Dims& local) const {
  return exchange_ ? exchange_->map.plan.to_sizes : local;
}

Array fetch_in_order(const BoxMap& map, const Array& x, double outside, const Dims& order) {
  const Dims& sizes = map.plan.to_sizes;
  Array out = map.plan.covers ? empty_like(x, sizes) : full_like(x, sizes, outside);
  run_exchange(map.plan, map.comm, out, x, order);
  return out;
}

Array give_back_in_order(const BoxMap& map, const Array& gradient, const Dims& order) {
  Array own = full_like(gradient, map.plan.from_sizes, 0.0);
  run_adjoint(map.plan, map.comm, own, gradient, order);
  return own;
}

Array WindowBuffer::fetch(const Array& x) const {
  if (!exchange_) return x;
  const ExchangePlan& e = exchange_->map.plan;
  if (e.local_only() && e.covers && e.own.pieces.size() == 1)
    return x.box(e.own.pieces[0].from, e.own.pieces[0].extent);
  if (fills()) {
    Array out = empty_like(x, e.to_sizes);
    fill(out, x);
    return out;
  }
  return fetch_in_order(exchange_->map, x, 0.0, exchange_->order);
}

bool WindowBuffer::fills() const { return exchange_ && exchange_->by_dims.used(); }
void WindowBuffer::fill(const Array& buffer, const Array& x) const {
  if (!exchange_->by_table.fill(buffer, x)) exchange_->by_dims.fill(buffer, x);
}

Array WindowBuffer::give_back(const Array& buffer) const {
  if (!exchange_) return buffer;
  if (fills()) return exchange_->by_dims.fold(buffer);
  if (!exchange_->own_in_place) return give_back_in_order(exchange_->map, buffer, exchange_->order);
  const ExchangePiece& piece = exchange_->map.plan.own.pieces[0];
  Array own = buffer.box(piece.to, piece.extent);
  run_adjoint(exchange_->neighbours, exchange_->map.comm, own, buffer, exchange_->order);
  return own;
}

}  // namespace tessera
