#include "ops/points/row_ops.h"

#include "mesh/mesh_state.h"
#include "ops/op.h"
#include "ops/points/arrays.h"
#include "ops/points/point_kernels.h"
#include "ops/points/route.h"
#include "ops/points/row_specs.h"

namespace tessera::points {

// Where this rank's rows come from: the route, and for each row its place among the received ones (-1: none).
struct Lookup {
  RowRoute route;
  Array places;
};

struct RowMemo {
  SpecPtr table;
  SpecPtr rows;
  std::shared_ptr<const Lookup> lookup;
};
RowMemoPtr make_row_memo() { return std::make_shared<RowMemo>(); }

namespace {

namespace kernel = kernels::points;

// A set of numbers below n that knows how many come before each of its members.
class RankedSet {
 public:
  explicit RankedSet(std::int64_t n)
      : words_(static_cast<std::size_t>(n / 64 + 1), 0), before_(words_.size() + 1, 0) {}
  void insert(std::int64_t i) { words_[word(i)] |= bit(i); }
  bool contains(std::int64_t i) const { return (words_[word(i)] & bit(i)) != 0; }
  void count() {
    for (std::size_t w = 0; w < words_.size(); ++w) before_[w + 1] = before_[w] + std::popcount(words_[w]);
  }
  std::int64_t rank(std::int64_t i) const {
    return before_[word(i)] + std::popcount(words_[word(i)] & (bit(i) - 1));
  }

 private:
  static std::size_t word(std::int64_t i) { return static_cast<std::size_t>(i) / 64; }
  static std::uint64_t bit(std::int64_t i) {
    return std::uint64_t{1} << (static_cast<std::uint64_t>(i) % 64);
  }
  std::vector<std::uint64_t> words_;
  std::vector<std::int64_t> before_;
};

// The rows of one copy of a table, numbered owner after owner.
class Owners {
 public:
  explicit Owners(const ShardSpec& table) {
    const MeshCore& core = *table.mesh_core();
    std::int64_t at = 0;
    for (int r = 0; r < core.size; ++r) {
      starts_.push_back(at);
      partners_.push_back(same_copy(table, core.rank, r));
      if (!partners_.back()) continue;
      for (const Interval i : table.intervals(0, r)) {
        runs_.push_back({i.lo, at});
        at += i.length();
      }
    }
    starts_.push_back(at);
    std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.row < b.row; });
  }
  // The number of a global row.
  std::int64_t number(std::int64_t row) const {
    const auto next = std::upper_bound(runs_.begin(), runs_.end(), row,
                                       [](std::int64_t value, const Run& run) { return value < run.row; });
    const Run& run = *std::prev(next);
    return run.number + row - run.row;
  }
  // First number of each rank's rows, and one entry more.
  const std::vector<std::int64_t>& starts() const { return starts_; }
  const std::vector<bool>& partners() const { return partners_; }

 private:
  struct Run {
    std::int64_t row;
    std::int64_t number;
  };
  std::vector<Run> runs_;
  std::vector<std::int64_t> starts_;
  std::vector<bool> partners_;
};

std::shared_ptr<const Lookup> look_up(const ShardSpec& table, const Array& rows) {
  const Owners owners(table);
  const std::int64_t n = rows.numel();
  Array numbers = Array::empty({n}, DType::I64);
  RankedSet wanted(owners.starts().back());
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t row = rows.data<std::int64_t>()[i];
    const std::int64_t number = row < 0 ? -1 : owners.number(row);
    numbers.data<std::int64_t>()[i] = number;
    if (row >= 0) wanted.insert(number);
  }
  wanted.count();
  RowRoute::Lists lists;
  for (std::size_t r = 0; r + 1 < owners.starts().size(); ++r) {
    std::vector<std::int64_t> theirs;
    for (std::int64_t i = owners.starts()[r]; i < owners.starts()[r + 1]; ++i)
      if (wanted.contains(i)) theirs.push_back(i - owners.starts()[r]);
    lists.push_back(list_of(theirs));
  }
  for (std::int64_t i = 0; i < n; ++i) {
    auto& number = numbers.data<std::int64_t>()[i];
    if (number >= 0) number = wanted.rank(number);
  }
  return std::make_shared<const Lookup>(
      Lookup{RowRoute::wanting(table.mesh_core()->comm, lists, owners.partners()), numbers});
}

// The same on all ranks: specs decide.
std::shared_ptr<const Lookup> look_up(RowMemo& memo, const SpecPtr& table, const SpecPtr& rows_spec,
                                      const Array& rows) {
  if (!memo.lookup || memo.table != table || memo.rows != rows_spec)
    memo = {table, rows_spec, look_up(*table, rows.contiguous())};
  return memo.lookup;
}

Dims with_columns(const Dims& rows, std::int64_t columns) {
  Dims sizes = rows;
  sizes.push_back(columns);
  return sizes;
}
Dims as_rows(const Array& values, const Dims& table) {
  return {numel_of(values.sizes()) / table[1], table[1]};
}

// The rows' spec with `columns` whole columns.
SpecPtr values_spec(const ShardSpec& rows, std::int64_t columns) {
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(rows.dim() + 1));
  for (int d = 0; d < rows.dim(); ++d)
    if (rows.cut(d)) cuts[static_cast<std::size_t>(d)] = *rows.cut(d);
  return ShardSpec::make(rows.mesh(), rows.placements(), with_columns(rows.sizes(), columns),
                         std::move(cuts));
}

// Row numbers that ranks of one copy of the table hold in common are shared out among them.
SpecPtr rows_beside(const ShardSpec& table, const ShardSpec& rows) {
  const SpecPtr whole = without_partial(rows);
  return cut_further(*whole, table.shard_mask() & ~whole->shard_mask());
}

Strategy take_plan(const std::vector<SpecPtr>& in, std::int64_t columns) {
  const SpecPtr table = row_cut(*in[0]);
  const SpecPtr rows = rows_beside(*table, *in[1]);
  return {{table, rows}, {values_spec(*rows, columns)}};
}

void take_local(LocalCall& call, const Dims& sizes, const SpecPtr& table_spec, const SpecPtr& rows_spec,
                const RowMemoPtr& memo) {
  const Array table = call.in[0].contiguous();
  const Device device = table.device();
  call.out[0] = Array::empty(call.out_sizes(0, sizes), table.dtype(), device);
  const Array out = call.out[0].reshape(as_rows(call.out[0], table.sizes()));
  if (table_spec == nullptr) {
    kernel::take_rows(device, {out, table, call.in[1].contiguous()});
    return;
  }
  const auto lookup = look_up(*memo, table_spec, rows_spec, call.in[1]);
  const Array came = lookup->route.forward({&table, 1}).front();
  kernel::take_rows(device, {out, came, lookup->places});
}

}  // namespace

Tensor take_rows(const Tensor& table, const Tensor& rows, const RowMemoPtr& memo) {
  static const OpDef op{"take_rows"};
  const std::array<Tensor, 2> inputs{table, rows};
  const Dims sizes = with_columns(rows.sizes(), table.size(1));
  auto plan = [&](const std::vector<SpecPtr>& in) { return take_plan(in, table.size(1)); };
  auto local = [&](LocalCall& call) {
    take_local(call, sizes, call.plan ? call.plan->inputs[0] : nullptr,
               call.plan ? call.plan->inputs[1] : nullptr, memo);
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [like = TableLike{in[0].sizes(), in[0].spec()}, rows_ = SavedTensor(in[1]), memo](
               const BackwardContext&, const Tensors& g) {
      return Tensors{add_rows(g[0], rows_.unpack("take_rows"), like, memo), Tensor()};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

namespace {

Strategy add_plan(const std::vector<SpecPtr>& in, const TableLike& like) {
  const SpecPtr given = like.spec ? like.spec : ShardSpec::replicated(in[0]->mesh(), like.sizes);
  const SpecPtr table = row_cut(*given);
  const SpecPtr rows = rows_beside(*table, *in[1]);
  Placements placements = table->placements();
  for (std::size_t a = 0; a < placements.size(); ++a)
    if (!placements[a].is_shard() && rows->placements()[a].is_shard()) placements[a] = Partial();
  Strategy s{{values_spec(*rows, like.sizes[1]), rows}, {with_placements(*table, placements)}};
  s.extra = table;
  s.held = {like.spec};
  return s;
}

void add_local(LocalCall& call, const TableLike& like, const SpecPtr& rows_spec, const RowMemoPtr& memo) {
  const Array values = call.in[0].contiguous();
  const Array flat = values.reshape(as_rows(values, like.sizes));
  const Device device = values.device();
  call.out[0] = Array::zeros(call.out_sizes(0, like.sizes), values.dtype(), device);
  if (call.plan == nullptr) {
    kernel::add_rows(device, {call.out[0], flat, call.in[1].contiguous()});
    return;
  }
  const SpecPtr table = std::static_pointer_cast<const ShardSpec>(call.plan->extra);
  const auto lookup = look_up(*memo, table, rows_spec, call.in[1]);
  const Array sums = Array::zeros({lookup->route.received(), like.sizes[1]}, values.dtype(), device);
  kernel::add_rows(device, {sums, flat, lookup->places});
  lookup->route.add_back(sums, call.out[0]);
}

}  // namespace

Tensor add_rows(const Tensor& values, const Tensor& rows, const TableLike& like, const RowMemoPtr& memo) {
  static const OpDef op{"add_rows"};
  const std::array<Tensor, 2> inputs{values, rows};
  auto plan = [&](const std::vector<SpecPtr>& in) { return add_plan(in, like); };
  auto local = [&](LocalCall& call) {
    add_local(call, like, call.plan ? call.plan->inputs[1] : nullptr, memo);
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [rows_ = SavedTensor(in[1]), memo](const BackwardContext&, const Tensors& g) {
      return Tensors{take_rows(g[0], rows_.unpack("add_rows"), memo), Tensor()};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&like.sizes, 1};
  c.parameters = Hash().add(like.sizes).add(reinterpret_cast<std::int64_t>(like.spec.get()));
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace tessera::points
