#include "ops/points/route.h"

#include <cstring>
#include <numeric>

#include "ops/indexing/rows.h"
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

std::int64_t rows_in(const Array& list) { return list.defined() ? list.numel() : 0; }

Dims with_rows(const Array& like, std::int64_t rows) {
  Dims sizes = like.sizes();
  sizes[0] = rows;
  return sizes;
}

// One message for `rows` rows of several arrays: section after section, each beginning at a multiple of 8.
class Sections {
 public:
  Sections(std::span<const Array> like, std::int64_t rows) {
    std::int64_t bytes = 0;
    std::vector<std::int64_t> starts;
    for (const Array& a : like) {
      starts.push_back(bytes);
      bytes += (numel_of(with_rows(a, rows)) * size_of(a.dtype()) + 7) / 8 * 8;
    }
    memory_ = Array::empty({bytes}, DType::Bool);
    for (std::size_t i = 0; i < like.size(); ++i) {
      const Dims sizes = with_rows(like[i], rows);
      parts_.push_back(Array::wrap(static_cast<char*>(memory_.raw()) + starts[i], sizes,
                                   contiguous_strides(sizes), like[i].dtype()));
    }
  }
  const Array& memory() const { return memory_; }
  const Array& part(std::size_t i) const { return parts_[i]; }

 private:
  Array memory_;
  std::vector<Array> parts_;  // borrow the memory
};

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

RowRoute RowRoute::giving(const Communicator& comm, Lists gives, const Partners& partners) {
  RowRoute route;
  route.comm_ = comm;
  std::vector<std::int64_t> counts;
  for (const Array& list : gives) counts.push_back(rows_in(list));
  route.takes_ = exchange_counts(comm, counts, partners);
  route.gives_ = std::move(gives);
  return route;
}

std::int64_t RowRoute::received() const {
  return std::accumulate(takes_.begin(), takes_.end(), std::int64_t{0});
}

std::vector<Array> RowRoute::forward(std::span<const Array> arrays) const {
  std::vector<SendBuffer> sends;
  std::vector<RecvBuffer> recvs;
  std::vector<Sections> out;
  std::vector<Sections> in;
  for (int r = 0; r < comm_.size(); ++r) {
    const std::int64_t rows = rows_in(gives_[at(r)]);
    out.emplace_back(arrays, rows);
    for (std::size_t i = 0; i < arrays.size() && rows > 0; ++i)
      take_rows(as_rows(out.back().part(i)), as_rows(arrays[i]), gives_[at(r)]);
    in.emplace_back(arrays, takes_[at(r)]);
    sends.push_back({r, out.back().memory().raw(), out.back().memory().nbytes()});
    recvs.push_back({r, in.back().memory().raw(), in.back().memory().nbytes()});
  }
  Work work = comm_.exchange(sends, recvs);
  for (const auto* list : {&out, &in})
    for (const Sections& s : *list) work.keep(s.memory());
  work.wait();
  std::vector<Array> result;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const Array whole = Array::empty(with_rows(arrays[i], received()), arrays[i].dtype(), arrays[i].device());
    std::int64_t to = 0;
    for (int r = 0; r < comm_.size(); ++r) {
      whole.slice(0, to, takes_[at(r)]).copy_(in[at(r)].part(i));
      to += takes_[at(r)];
    }
    result.push_back(whole);
  }
  return result;
}

void RowRoute::put_back(const Array& received, const Array& table) const {
  std::vector<SendBuffer> sends;
  std::vector<RecvBuffer> recvs;
  const Array answers = received.contiguous();
  std::vector<Array> kept{answers};
  std::int64_t from = 0;
  for (int r = 0; r < comm_.size(); ++r) {
    const Array theirs = answers.slice(0, from, takes_[at(r)]);
    from += takes_[at(r)];
    sends.push_back({r, theirs.raw(), theirs.nbytes()});
    kept.push_back(Array::empty(with_rows(table, rows_in(gives_[at(r)])), table.dtype(), table.device()));
    recvs.push_back({r, kept.back().raw(), kept.back().nbytes()});
  }
  Work work = comm_.exchange(sends, recvs);
  for (const Array& a : kept) work.keep(a);
  work.wait();
  const auto row_bytes = static_cast<std::size_t>(as_rows(table).size(2) * size_of(table.dtype()));
  for (int r = 0; r < comm_.size(); ++r) {
    const auto* next = static_cast<const char*>(kept[at(r) + 1].raw());
    for (std::int64_t i = 0; i < rows_in(gives_[at(r)]); ++i, next += row_bytes) {
      const auto row = static_cast<std::size_t>(gives_[at(r)].data<std::int64_t>()[i]);
      std::memcpy(static_cast<char*>(table.raw()) + row * row_bytes, next, row_bytes);
    }
  }
}

RowRoute RowRoute::lists_back(const Array& of_received, const Array& of_rows) const {
  RowRoute route;
  route.comm_ = comm_;
  const auto* received = of_received.data<std::int64_t>();
  std::int64_t entry = 0;
  for (int r = 0; r < comm_.size(); ++r) {
    const std::int64_t entries = std::accumulate(received, received + takes_[at(r)], std::int64_t{0});
    received += takes_[at(r)];
    const Array list = Array::empty({entries}, DType::I64);
    std::iota(list.data<std::int64_t>(), list.data<std::int64_t>() + entries, entry);
    entry += entries;
    route.gives_.push_back(list);
    std::int64_t mine = 0;
    for (std::int64_t i = 0; i < rows_in(gives_[at(r)]); ++i)
      mine += of_rows.data<std::int64_t>()[gives_[at(r)].data<std::int64_t>()[i]];
    route.takes_.push_back(mine);
  }
  return route;
}

}  // namespace tessera::points
