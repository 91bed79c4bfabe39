#include "ops/indexing/rows.h"

#include <algorithm>
#include <limits>
#include <numeric>

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

RowExchange::RowExchange(const Communicator& comm, const Places& places, Held held)
    : comm_(comm), held_(std::move(held)), counts_(static_cast<std::size_t>(comm.size())) {
  const std::int64_t largest = *std::max_element(held_.rows.begin(), held_.rows.end());
  travelling_ = largest <= std::numeric_limits<std::int32_t>::max() ? DType::I32 : DType::I64;
  // Positions of the numbers by member.
  std::vector<std::vector<std::int64_t>> wishes(counts_.size());
  slots_ = Array::full({static_cast<std::int64_t>(places.size())}, -1, DType::I64);
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i].member >= 0)
      wishes[static_cast<std::size_t>(places[i].member)].push_back(static_cast<std::int64_t>(i));
  for (std::size_t m = 0; m < wishes.size(); ++m) add_member(m, wishes[m], places);
}

bool RowExchange::asks_for_all(std::int64_t rows, std::size_t member) const {
  const auto number = static_cast<std::int64_t>(size_of(travelling_));
  if (static_cast<int>(member) == comm_.rank()) return false;  // nothing is sent
  return rows > 0 && rows * (number + held_.row_bytes) >= held_.rows[member] * held_.row_bytes;
}

// The rows at the positions `wishes` in ascending order, each once, and where each position finds its own. By
// a bit for each row up to the last one where those take less room than the numbers, else in order.
void RowExchange::add_member(std::size_t member, std::vector<std::int64_t>& wishes, const Places& places) {
  const std::int64_t before = wanted();
  const auto row = [&](std::int64_t position) { return places[static_cast<std::size_t>(position)].row; };
  std::int64_t last = 0;
  for (const std::int64_t position : wishes) last = std::max(last, row(position));
  std::int64_t* slots = slots_.data<std::int64_t>();
  if (last / 64 < std::ssize(wishes)) {
    RankedSet rows(last + 1);
    for (const std::int64_t position : wishes) rows.insert(row(position));
    rows.count();
    rows.for_each([&](std::int64_t r) { rows_.push_back(r); });
    for (const std::int64_t position : wishes) slots[position] = before + rows.rank(row(position));
  } else {
    std::sort(wishes.begin(), wishes.end(), [&](std::int64_t x, std::int64_t y) { return row(x) < row(y); });
    for (const std::int64_t position : wishes) {
      if (wanted() == before || rows_.back() != row(position)) rows_.push_back(row(position));
      slots[position] = wanted() - 1;
    }
  }
  if (asks_for_all(wanted() - before, member)) {
    rows_.resize(static_cast<std::size_t>(before + held_.rows[member]));
    std::iota(rows_.begin() + before, rows_.end(), 0);
    for (const std::int64_t position : wishes) slots[position] = before + row(position);
  }
  counts_[member] = wanted() - before;
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
  const std::int64_t own = held_.rows[static_cast<std::size_t>(comm_.rank())];
  std::vector<std::int64_t> told;
  std::vector<std::int64_t> tells;
  std::vector<std::int64_t> numbers;
  auto first = rows_.begin();
  for (std::size_t m = 0; m < counts_.size(); ++m) {
    tells.push_back(counts_[m] == held_.rows[m] ? 0 : counts_[m]);
    told.push_back(their_counts_[m] == own ? 0 : their_counts_[m]);
    numbers.insert(numbers.end(), first, first + tells.back());
    first += counts_[m];
  }
  their_rows_ = Array::zeros({std::accumulate(told.begin(), told.end(), std::int64_t{0})}, travelling_);
  return exchange_rows(comm_, their_rows_, told, numbers_of(numbers).to(travelling_), tells);
}

Array RowExchange::their_numbers() const {
  const Array told = their_rows_.to(DType::I64);
  const std::int64_t own = held_.rows[static_cast<std::size_t>(comm_.rank())];
  if (std::find(their_counts_.begin(), their_counts_.end(), own) == their_counts_.end()) return told;
  std::vector<std::int64_t> all;
  const std::int64_t* next = told.data<std::int64_t>();
  for (const std::int64_t count : their_counts_)
    if (count == own) {
      all.resize(all.size() + static_cast<std::size_t>(own));
      std::iota(all.end() - own, all.end(), 0);
    } else {
      all.insert(all.end(), next, next + count);
      next += count;
    }
  return numbers_of(all);
}

std::int64_t RowExchange::their_total() const {
  return std::accumulate(their_counts_.begin(), their_counts_.end(), std::int64_t{0});
}

Array RowExchange::fetch(const Array& x) {
  exchange_numbers().wait();
  const auto room = [&](std::int64_t rows) {
    return Array::empty({rows, x.size(0), x.size(2)}, x.dtype(), x.device());
  };
  const Array out = room(their_total());
  kernels::take_rows(x.device(), {out.transpose(0, 1), x, their_numbers()});
  const Array in = room(wanted());
  exchange_rows(comm_, in, counts_, out, their_counts_).wait();
  return in.transpose(0, 1);
}

void RowExchange::deliver(const Array& terms, const Array& x) {
  Work numbers = exchange_numbers();
  const Array out = terms.transpose(0, 1).contiguous();
  const Array in = Array::empty({their_total(), x.size(0), x.size(2)}, out.dtype(), out.device());
  Work rows = exchange_rows(comm_, in, their_counts_, out, counts_);
  numbers.wait();
  rows.wait();
  kernels::put_rows(x.device(), {x, in.transpose(0, 1), their_numbers()});
}

}  // namespace tessera
