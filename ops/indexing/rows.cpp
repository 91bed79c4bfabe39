#include "ops/indexing/rows.h"

#include <algorithm>

#include "mesh/mesh_state.h"
#include "ops/indexing/kernels.h"
#include "ops/indexing/ranked_set.h"
#include "ops/numbers.h"
#include "ops/reduce/groups.h"

namespace tessera {

Work exchange_rows(const Communicator& comm, const Array& in, std::span<const std::int64_t> in_counts,
                   const Array& out, std::span<const std::int64_t> out_counts) {
  const auto row_bytes = [](const Array& a) { return a.size(0) == 0 ? 0 : a.nbytes() / a.size(0); };
  const auto at = [](const Array& a, std::int64_t row) {
    return a.numel() == 0 || a.device() == Device::Meta ? nullptr : a.slice(0, row, 1).raw();
  };
  std::vector<SendBuffer> sends;
  std::vector<RecvBuffer> recvs;
  std::int64_t in_row = 0;
  std::int64_t out_row = 0;
  for (int m = 0; m < comm.size(); ++m) {
    const std::int64_t send = out_counts[static_cast<std::size_t>(m)];
    const std::int64_t recv = in_counts[static_cast<std::size_t>(m)];
    if (send > 0) sends.push_back({m, at(out, out_row), send * row_bytes(out)});
    if (recv > 0) recvs.push_back({m, at(in, in_row), recv * row_bytes(in)});
    out_row += send;
    in_row += recv;
  }
  Work work = comm.exchange(sends, recvs, in.device());
  work.keep(in);
  work.keep(out);
  return work;
}

RowOwners::RowOwners(const ShardSpec& spec, int dim, unsigned mask) {
  const MeshCore& core = *spec.mesh_core();
  const std::vector<int> ranks = mask == 0 ? std::vector<int>{core.rank} : group_ranks(spec, mask);
  if (mask != 0) comm_ = core.groups[mask];
  for (std::size_t m = 0; m < ranks.size(); ++m) {
    std::int64_t local = 0;
    for (const Interval i : spec.intervals(dim, ranks[m])) {
      held_.push_back({i, static_cast<int>(m), local});
      local += i.length();
    }
    rows_.push_back(local);
  }
  std::sort(held_.begin(), held_.end(), [](const Held& a, const Held& b) { return a.rows.lo < b.rows.lo; });
}

RowOwners::Place RowOwners::find(std::int64_t row) const {
  auto after = std::upper_bound(held_.begin(), held_.end(), row,
                                [](std::int64_t r, const Held& h) { return r < h.rows.lo; });
  if (after == held_.begin()) return {};
  const Held& h = *--after;
  if (row >= h.rows.hi) return {};
  return {h.member, h.local + row - h.rows.lo};
}

std::vector<cpu::HeldRows> RowOwners::own_rows() const {
  std::vector<cpu::HeldRows> rows;
  for (const Held& h : held_) rows.push_back({h.rows.lo, h.rows.hi, h.local});
  return rows;
}

// The rows at the positions in ascending order, each once, and where each position finds its own. By a bit
// for each row up to the last one where those take less room than the numbers, else not at all.
template <class Row>
std::optional<std::int64_t> RowExchange::add_once(const std::vector<std::int64_t>& wishes, const Row& row) {
  std::int64_t last = 0;
  for (const std::int64_t position : wishes) last = std::max(last, row(position));
  if (last / 64 >= static_cast<std::int64_t>(wishes.size())) return std::nullopt;
  RankedSet rows(last + 1);
  for (const std::int64_t position : wishes) rows.insert(row(position));
  rows.count();
  const std::int64_t before = wanted();
  rows.for_each([&](std::int64_t r) { rows_.push_back(r); });
  for (const std::int64_t position : wishes)
    slots_.data<std::int64_t>()[position] = before + rows.rank(row(position));
  return rows.size();
}

RowExchange::RowExchange(const Communicator& comm, const Places& places, const Options& options)
    : comm_(comm),
      travelling_(options.narrow ? DType::I32 : DType::I64),
      counts_(static_cast<std::size_t>(comm.size())) {
  // Positions of the numbers by member, then by row.
  std::vector<std::vector<std::int64_t>> wishes(counts_.size());
  slots_ = Array::full({static_cast<std::int64_t>(places.size())}, -1, DType::I64);
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i].member >= 0)
      wishes[static_cast<std::size_t>(places[i].member)].push_back(static_cast<std::int64_t>(i));
  const auto row = [&](std::int64_t position) { return places[static_cast<std::size_t>(position)].row; };
  for (std::size_t m = 0; m < wishes.size(); ++m) {
    if (options.once) {
      if (const std::optional<std::int64_t> added = add_once(wishes[m], row)) {
        counts_[m] = *added;
        continue;
      }
      std::sort(wishes[m].begin(), wishes[m].end(),
                [&](std::int64_t x, std::int64_t y) { return row(x) < row(y); });
    }
    for (const std::int64_t position : wishes[m]) {
      if (!options.once || counts_[m] == 0 || rows_.back() != row(position)) {
        rows_.push_back(row(position));
        ++counts_[m];
      }
      slots_.data<std::int64_t>()[position] = wanted() - 1;
    }
  }
}

void RowExchange::agree_on_counts(const char* op, std::optional<std::int64_t> wrong,
                                  const std::function<std::string(std::int64_t)>& refusal) {
  const std::int64_t members = comm_.size();
  const Array mine = Array::zeros({members, 2}, DType::I64);  // count or -1, wrong number
  for (std::int64_t m = 0; m < members; ++m) {
    mine.data<std::int64_t>()[2 * m] = wrong ? -1 : counts_[static_cast<std::size_t>(m)];
    mine.data<std::int64_t>()[2 * m + 1] = wrong.value_or(0);
  }
  const Array theirs = mine.clone();  // a communicator that only records leaves it so: all ask alike
  const std::vector<std::int64_t> one(static_cast<std::size_t>(members), 1);
  exchange_rows(comm_, theirs, one, mine, one).wait();
  for (std::int64_t m = 0; m < members; ++m) {
    const std::int64_t* told = theirs.data<std::int64_t>() + 2 * m;
    if (told[0] < 0) TS_FAIL(Usage, op, "{}", refusal(told[1]));
    their_counts_.push_back(told[0]);
  }
}

Work RowExchange::exchange_numbers() {
  std::int64_t n = 0;
  for (const std::int64_t count : their_counts_) n += count;
  their_rows_ = Array::zeros({n}, travelling_);
  return exchange_rows(comm_, their_rows_, their_counts_, numbers_of(rows_).to(travelling_), counts_);
}

Array RowExchange::fetch(const Array& x) {
  exchange_numbers().wait();
  const auto room = [&](std::int64_t rows) {
    return Array::empty({rows, x.size(0), x.size(2)}, x.dtype(), x.device());
  };
  const Array out = room(their_rows_.size(0));
  kernels::take_rows(x.device(), {out.transpose(0, 1), x, their_numbers()});
  const Array in = room(wanted());
  exchange_rows(comm_, in, counts_, out, their_counts_).wait();
  return in.transpose(0, 1);
}

void RowExchange::deliver(const Array& terms, const Array& x) {
  Work numbers = exchange_numbers();
  const Array out = terms.transpose(0, 1).contiguous();
  const Array in = Array::empty({their_rows_.size(0), x.size(0), x.size(2)}, out.dtype(), out.device());
  Work rows = exchange_rows(comm_, in, their_counts_, out, counts_);
  numbers.wait();
  rows.wait();
  kernels::put_rows(x.device(), {x, in.transpose(0, 1), their_numbers()});
}

}  // namespace tessera
