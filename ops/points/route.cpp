#include "ops/points/route.h"

#include <cstring>
#include <numeric>

#include "ops/indexing/kernels.h"
#include "ops/indexing/rows.h"
#include "ops/numbers.h"
#include "ops/points/arrays.h"
#include "runtime/error.h"

namespace tessera::points {
namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

void append(std::string& text, const void* data, std::int64_t bytes) {
  text.append(static_cast<const char*>(data), static_cast<std::size_t>(bytes));
}
void append_cells(std::string& text, const Cells& cells) {
  if (cells.count() == 0) return;
  append(text, cells.boxes.raw(), cells.boxes.nbytes());
  append(text, cells.weights.raw(), cells.weights.nbytes());
}

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}
  void read(void* to, std::int64_t bytes) {
    TS_CHECK(at_ + static_cast<std::size_t>(bytes) <= text_.size(), "publish", "a summary is too short");
    std::memcpy(to, text_.data() + at_, static_cast<std::size_t>(bytes));
    at_ += static_cast<std::size_t>(bytes);
  }
  Cells read_cells(std::int64_t n, std::int64_t dims, DType dtype) {
    if (n == 0) return {};
    Cells cells{Array::empty({n, 2, dims}, dtype), Array::empty({n}, DType::F64)};
    read(cells.boxes.raw(), cells.boxes.nbytes());
    read(cells.weights.raw(), cells.weights.nbytes());
    return cells;
  }

 private:
  const std::string& text_;
  std::size_t at_ = 0;
};

struct SummaryHead {
  std::int64_t bad_point, bad_query, point_cells, query_cells, dims, dtype;
};

std::vector<std::int64_t> exchange_counts(const Communicator& comm, const std::vector<std::int64_t>& mine,
                                          const Partners& partners) {
  std::vector<std::int64_t> theirs(mine.size(), 0);
  std::vector<SendBuffer> sends;
  std::vector<RecvBuffer> recvs;
  for (int r = 0; r < comm.size(); ++r) {
    if (partners.give[at(r)]) sends.push_back({r, &mine[at(r)], sizeof(std::int64_t)});
    if (partners.take[at(r)]) recvs.push_back({r, &theirs[at(r)], sizeof(std::int64_t)});
  }
  comm.exchange(sends, recvs).wait();
  return theirs;
}

Array with_rows(const Array& like, std::int64_t rows) {
  Dims sizes = like.sizes();
  sizes[0] = rows;
  return Array::empty(sizes, like.dtype(), like.device());
}

}  // namespace

std::vector<Summary> publish(const Communicator& comm, const Summary& mine) {
  const Array& some = mine.points.count() > 0 ? mine.points.boxes : mine.queries.boxes;
  const SummaryHead head{mine.bad_point,
                         mine.bad_query,
                         mine.points.count(),
                         mine.queries.count(),
                         some.defined() ? some.size(2) : 0,
                         some.defined() ? static_cast<std::int64_t>(some.dtype()) : 0};
  std::string text;
  append(text, &head, sizeof head);
  append_cells(text, mine.points);
  append_cells(text, mine.queries);
  std::vector<Summary> all;
  for (const std::string& theirs : comm.all_gather_bytes(text)) {
    Reader reader(theirs);
    SummaryHead h{};
    reader.read(&h, sizeof h);
    const auto dtype = static_cast<DType>(h.dtype);
    Summary s{h.bad_point, h.bad_query, {}, {}};
    s.points = reader.read_cells(h.point_cells, h.dims, dtype);
    s.queries = reader.read_cells(h.query_cells, h.dims, dtype);
    all.push_back(std::move(s));
  }
  return all;
}

RowRoute RowRoute::giving(const Communicator& comm, const Lists& gives, const Partners& partners) {
  RowRoute route;
  route.comm_ = comm;
  std::vector<std::int64_t> all;
  for (const auto& list : gives) {
    route.gives_.push_back(static_cast<std::int64_t>(list.size()));
    all.insert(all.end(), list.begin(), list.end());
  }
  route.given_ = numbers_of(all);
  route.takes_ = exchange_counts(comm, route.gives_, partners);
  return route;
}

std::int64_t RowRoute::taken() const {
  return std::accumulate(takes_.begin(), takes_.end(), std::int64_t{0});
}

std::vector<Array> RowRoute::forward(std::span<const Array> arrays) const {
  std::vector<Array> result;
  std::vector<Work> works;
  for (const Array& array : arrays) {
    const Array out = with_rows(array, given_.numel());
    kernels::take_rows(out.device(), {as_rows(out), as_rows(array), given_});
    result.push_back(with_rows(array, taken()));
    works.push_back(exchange_rows(comm_, result.back(), takes_, out, gives_));
  }
  for (Work& work : works) work.wait();
  return result;
}

void RowRoute::put_back(const Array& taken, const Array& table) const {
  const Array answers = with_rows(table, given_.numel());
  exchange_rows(comm_, answers, gives_, taken.contiguous(), takes_).wait();
  const auto bytes = static_cast<std::size_t>(as_rows(table).size(2) * size_of(table.dtype()));
  const auto* from = static_cast<const char*>(answers.raw());
  for (std::int64_t i = 0; i < given_.numel(); ++i, from += bytes)
    std::memcpy(
        static_cast<char*>(table.raw()) + static_cast<std::size_t>(given_.data<std::int64_t>()[i]) * bytes,
        from, bytes);
}

RowRoute RowRoute::lists_back(const Array& of_taken, const Array& of_rows) const {
  RowRoute route;
  route.comm_ = comm_;
  const auto* taken = of_taken.data<std::int64_t>();
  for (const std::int64_t n : takes_) {
    route.gives_.push_back(std::accumulate(taken, taken + n, std::int64_t{0}));
    taken += n;
  }
  route.given_ = counted(sum_of(of_taken));
  const auto* row = given_.data<std::int64_t>();
  for (const std::int64_t n : gives_) {
    std::int64_t entries = 0;
    for (const auto* end = row + n; row < end; ++row) entries += of_rows.data<std::int64_t>()[*row];
    route.takes_.push_back(entries);
  }
  return route;
}

}  // namespace tessera::points
