#include "tests/comm_cases.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/support/world.h"

namespace tessera::comm_cases {

namespace {

constexpr DType kAllDTypes[] = {DType::F32, DType::F64, DType::BF16, DType::F16,
                                DType::I64, DType::I32, DType::Bool};
constexpr ReduceOp kAllOps[] = {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product};

// The same numbers on all ranks.
std::mt19937 shared_random(unsigned stream) { return std::mt19937(12345U + stream); }

unsigned char coded(int from, int to, std::int64_t i, int round) {
  return static_cast<unsigned char>(from * 131 + to * 17 + i * 7 + round * 53);
}

// Between -5 and 5, of both signs, not sorted, and with more digits than a bf16 has.
double value_of(int rank, std::int64_t i) {
  const auto mixed = static_cast<std::uint64_t>(i * 7919 + rank * 104729 + 1) * 0x9e3779b97f4a7c15ULL;
  return static_cast<double>(mixed >> 40U) / static_cast<double>(1U << 24U) * 10.0 - 5.0;
}

template <class T>
T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return op == ReduceOp::Sum || op == ReduceOp::Max ? a || b : a && b;
  } else {
    switch (op) {
      case ReduceOp::Sum:
        return a + b;
      case ReduceOp::Product:
        return a * b;
      case ReduceOp::Max:
        return a > b ? a : b;
      case ReduceOp::Min:
        return a < b ? a : b;
    }
    return a;
  }
}

std::vector<std::int64_t> uneven_counts(int ranks, std::int64_t total) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), 0);
  for (std::int64_t i = 0; i < total; ++i) counts[static_cast<std::size_t>((i * i + i / 3) % ranks)] += 1;
  return counts;
}

std::int64_t offset_of(const std::vector<std::int64_t>& counts, int r) {
  return std::accumulate(counts.begin(), counts.begin() + r, std::int64_t{0});
}

}  // namespace

namespace {

Array contribution_on_host(int rank, const Dims& sizes, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double v = value_of(rank, static_cast<std::int64_t>(i));
    values[i] = dtype == DType::Bool ? (v > 0 ? 1 : 0) : is_floating(dtype) ? v : std::round(v);
  }
  return Array::from(values, sizes, dtype);
}

Array bytes_on_host(std::size_t n, unsigned char value) {
  const Array bytes = Array::empty({static_cast<std::int64_t>(n)}, DType::Bool);
  if (n > 0) std::memset(bytes.raw(), value, n);
  return bytes;
}

}  // namespace

Array contribution(int rank, const Dims& sizes, DType dtype) {
  return contribution_on_host(rank, sizes, dtype).to(test_device());
}

bool equal(const Array& a, const Array& b) {
  const Array x = a.to(Device::Cpu).contiguous();
  const Array y = b.to(Device::Cpu).contiguous();
  return x.dtype() == y.dtype() && x.sizes() == y.sizes() &&
         (x.nbytes() == 0 || std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.nbytes())) == 0);
}

bool same_on_all_ranks(const Communicator& comm, const Array& array) {
  const Array packed = array.to(Device::Cpu).contiguous();
  const std::string mine(static_cast<const char*>(packed.raw()), static_cast<std::size_t>(packed.nbytes()));
  for (const std::string& theirs : comm.all_gather_bytes(mine)) {
    if (theirs != mine) return false;
  }
  return true;
}

Array reduced(int ranks, const Dims& sizes, DType dtype, ReduceOp op) {
  const Array out = Array::empty(sizes, dtype);
  dispatch(dtype, [&]<class T>(TypeTag<T>) {
    using A = std::conditional_t<kHalf<T>, float, T>;
    std::vector<A> sums(static_cast<std::size_t>(out.numel()));
    for (int r = 0; r < ranks; ++r) {
      const Array in = contribution_on_host(r, sizes, dtype);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const A next = static_cast<A>(in.data<T>()[i]);
        sums[i] = r == 0 ? next : static_cast<A>(combine<A>(op, sums[i], next));
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) out.data<T>()[i] = T(sums[i]);
  });
  return out;
}

void random_exchanges(const Communicator& comm, int rounds, std::int64_t max_bytes) {
  const int size = comm.size();
  const int rank = comm.rank();
  std::mt19937 random = shared_random(1);
  std::vector<Array> buffers;  // outlive the works
  std::vector<Work> works;
  buffers.reserve(static_cast<std::size_t>(2 * rounds * size));
  struct Landing {
    std::size_t buffer;
    int from;
    int round;
    std::shared_ptr<Elsewhere> elsewhere;
  };
  std::vector<Landing> landings;
  for (int round = 0; round < rounds; ++round) {
    std::vector<SendBuffer> sends;
    std::vector<RecvBuffer> recvs;
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < size; ++to) {
        const bool none = random() % 3 == 0;
        const auto bytes = none ? 0 : static_cast<std::int64_t>(random()) % (max_bytes + 1);
        const auto n = static_cast<std::size_t>(bytes);
        if (from == rank) {
          const Array data = bytes_on_host(n, 0);
          auto* code = static_cast<unsigned char*>(data.raw());
          for (std::size_t i = 0; i < n; ++i) code[i] = coded(from, to, static_cast<std::int64_t>(i), round);
          buffers.push_back(data.to(test_device()));
          if (bytes > 0 || random() % 2 == 0) sends.push_back({to, buffers.back().raw(), bytes});
        } else {
          random.discard(bytes > 0 ? 0 : 1);
        }
        if (to == rank) {
          buffers.push_back(bytes_on_host(n, 0xee).to(test_device()));
          auto elsewhere = (from + to + round) % 2 == 0 ? nullptr : std::make_shared<Elsewhere>(n);
          landings.push_back({buffers.size() - 1, from, round, elsewhere});
          recvs.push_back({from, buffers.back().raw(), bytes, elsewhere});
        }
      }
    }
    works.push_back(comm.exchange(sends, recvs, test_device()));
  }
  // Half of them from the back, so that ranks finish in an order that differs from that of posting.
  for (std::size_t i = works.size(); i > works.size() / 2; --i) works[i - 1].wait();
  for (Work& work : works) work.wait();
  for (const Landing& landing : landings) {
    const Array data = buffers[landing.buffer].to(Device::Cpu);
    const auto* code = static_cast<const unsigned char*>(data.raw());
    if (landing.elsewhere) code = landing.elsewhere->where(code);
    for (std::size_t i = 0; i < static_cast<std::size_t>(data.numel()); ++i) {
      expect(code[i] == coded(landing.from, rank, static_cast<std::int64_t>(i), landing.round),
             "round {}: byte {} from rank {} is {}", landing.round, i, landing.from, code[i]);
    }
  }
}

void all_reduces(const Communicator& comm, const std::vector<std::int64_t>& lengths) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      for (const std::int64_t length : lengths) {
        const Array array = contribution(comm.rank(), {length}, dtype);
        comm.all_reduce(array, op).wait();
        expect(equal(array, reduced(comm.size(), {length}, dtype, op)), "{} of {} {} over {} ranks is wrong",
               name_of(op), length, name_of(dtype), comm.size());
        if (op == ReduceOp::Sum) expect(same_on_all_ranks(comm, array), "ranks differ: {}", name_of(dtype));
      }
    }
  }
}

void reduce_scatters(const Communicator& comm) {
  const int size = comm.size();
  const int rank = comm.rank();
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      const Dims even{2 * size, 3};
      const Array out = Array::empty({2, 3}, dtype, test_device());
      comm.reduce_scatter(out, contribution(rank, even, dtype), op).wait();
      expect(equal(out, reduced(size, even, dtype, op).slice(0, 2 * rank, 2)), "reduce_scatter of {}",
             name_of(dtype));

      const std::vector<std::int64_t> counts = uneven_counts(size, 17);
      const std::int64_t own = counts[static_cast<std::size_t>(rank)];
      const Array slab = Array::empty({own, 3}, dtype, test_device());
      comm.reduce_scatter_v(slab, contribution(rank, {17, 3}, dtype), counts, op).wait();
      expect(equal(slab, reduced(size, {17, 3}, dtype, op).slice(0, offset_of(counts, rank), own)),
             "reduce_scatter_v of {}", name_of(dtype));
    }
  }
}

namespace {

void gathers(const Communicator& comm, DType dtype) {
  const int size = comm.size();
  const int rank = comm.rank();
  const Array mine = contribution(rank, {2, 3}, dtype);
  const Array all = Array::zeros({2 * size, 3}, dtype, test_device());
  comm.all_gather(all, mine).wait();
  for (int r = 0; r < size; ++r) {
    expect(equal(all.slice(0, 2 * r, 2), contribution(r, {2, 3}, dtype)), "all_gather, block {}", r);
  }
  const std::vector<std::int64_t> counts = uneven_counts(size, 11);
  const Array joined = Array::zeros({11, 2}, dtype, test_device());
  // In place: this rank's rows already lie where they belong.
  const std::int64_t own = counts[static_cast<std::size_t>(rank)];
  const Array place = joined.slice(0, offset_of(counts, rank), own);
  place.copy_(contribution(rank, {own, 2}, dtype));
  comm.all_gather_v(joined, place, counts).wait();
  for (int r = 0; r < size; ++r) {
    const std::int64_t n = counts[static_cast<std::size_t>(r)];
    expect(equal(joined.slice(0, offset_of(counts, r), n), contribution(r, {n, 2}, dtype)),
           "all_gather_v, {}", r);
  }
  for (int root = 0; root < size; ++root) {
    const Array out = rank == root ? Array::zeros({2 * size, 3}, dtype, test_device()) : Array();
    comm.gather(out, mine, root).wait();
    if (rank == root) expect(equal(out, all), "gather at {}", root);
    const Array back = Array::zeros({2, 3}, dtype, test_device());
    comm.scatter(back, out, root).wait();
    expect(equal(back, mine), "scatter from {}", root);
    const Array shared = contribution(rank, {5}, dtype);
    comm.broadcast(shared, root).wait();
    expect(equal(shared, contribution(root, {5}, dtype)), "broadcast from {}", root);
  }
}

void transposes(const Communicator& comm, DType dtype) {
  const int size = comm.size();
  const int rank = comm.rank();
  const Array in = contribution(rank, {size, 4}, dtype);
  const Array out = Array::zeros({size, 4}, dtype, test_device());
  comm.all_to_all(out, in).wait();
  for (int r = 0; r < size; ++r) {
    expect(equal(out.slice(0, r, 1), contribution(r, {size, 4}, dtype).slice(0, rank, 1)), "all_to_all, {}",
           r);
  }
  // Rank s sends (s + d) % 3 rows to rank d.
  std::vector<std::int64_t> sends;
  std::vector<std::int64_t> recvs;
  for (int r = 0; r < size; ++r) {
    sends.push_back((rank + r) % 3);
    recvs.push_back((rank + r) % 3);
  }
  const Array given = contribution(rank, {offset_of(sends, size), 2}, dtype);
  const Array taken = Array::zeros({offset_of(recvs, size), 2}, dtype, test_device());
  comm.all_to_all_v(taken, recvs, given, sends).wait();
  for (int r = 0; r < size; ++r) {
    std::vector<std::int64_t> theirs;
    for (int d = 0; d < size; ++d) theirs.push_back((r + d) % 3);
    const Array source = contribution(r, {offset_of(theirs, size), 2}, dtype);
    const std::int64_t n = recvs[static_cast<std::size_t>(r)];
    expect(equal(taken.slice(0, offset_of(recvs, r), n), source.slice(0, offset_of(theirs, rank), n)),
           "all_to_all_v, {}", r);
  }
}

}  // namespace

void movements(const Communicator& comm) {
  for (const DType dtype : kAllDTypes) {
    gathers(comm, dtype);
    transposes(comm, dtype);
  }
  const Array nothing = Array::zeros({0, 3}, DType::F32, test_device());
  comm.all_reduce(nothing, ReduceOp::Sum).wait();
  comm.all_gather(nothing, nothing).wait();
  comm.broadcast(nothing, 0).wait();
  const Array scalar = Array::full({}, comm.rank() + 1.0, DType::F64, test_device());
  const Array scalars = Array::zeros({comm.size()}, DType::F64, test_device());
  comm.all_gather(scalars, scalar).wait();
  comm.all_reduce(scalar, ReduceOp::Sum).wait();
  expect(scalar.at(0) == 0.5 * comm.size() * (comm.size() + 1), "sum of scalars is {}", scalar.at(0));
  expect(scalars.at(comm.size() - 1) == comm.size(), "gathered scalar is {}", scalars.at(comm.size() - 1));
  comm.barrier();
}

void strided_arrays(const Communicator& comm) {
  const int size = comm.size();
  const double sum_of_ranks = 0.5 * size * (size + 1);
  // A sum over ranks of two columns of a matrix leaves the others as they are.
  std::vector<double> values(12);
  for (std::size_t i = 0; i < 12; ++i) values[i] = (comm.rank() + 1.0) * static_cast<double>(i);
  const Array base = Array::from(values, {3, 4}, DType::F32).to(test_device());
  comm.all_reduce(base.slice(1, 1, 2), ReduceOp::Sum).wait();
  for (std::int64_t i = 0; i < 12; ++i) {
    const bool inside = i % 4 == 1 || i % 4 == 2;
    const double factor = inside ? sum_of_ranks : comm.rank() + 1.0;
    expect(base.at(i) == factor * static_cast<double>(i), "element {} is {}", i, base.at(i));
  }
  // Gathered columns into every other column of a larger matrix, in a transposed view.
  const Array large = Array::full({4, 2 * size}, -1, DType::I32, test_device());
  const Array columns = large.slice(1, 0, size, 2).transpose(0, 1);
  const Array column =
      Array::from(std::vector<double>{1, 2, 3, 4}, {4, 1}, DType::I32).to(test_device()).transpose(0, 1);
  comm.all_gather(columns, column).wait();
  for (std::int64_t i = 0; i < large.numel(); ++i) {
    const double expected = i % 2 == 1 ? -1 : 1 + static_cast<double>(i / (2 * size));
    expect(large.at(i) == expected, "element {} is {}", i, large.at(i));
  }
  const Array wide = Array::full({3, 6}, comm.rank(), DType::F64, test_device());
  comm.broadcast(wide.slice(1, 2, 3), size - 1).wait();
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    const bool inside = i % 6 >= 2 && i % 6 < 5;
    expect(wide.at(i) == (inside ? size - 1 : comm.rank()), "element {} is {}", i, wide.at(i));
  }
}

void host_values(const Communicator& comm) {
  const std::string mine(static_cast<std::size_t>(comm.rank() * 3),
                         static_cast<char>('a' + comm.rank() % 26));
  const std::vector<std::string> all = comm.all_gather_bytes(mine);
  expect(static_cast<int>(all.size()) == comm.size(), "{} values came", all.size());
  for (int r = 0; r < comm.size(); ++r) {
    const std::string expected(static_cast<std::size_t>(r * 3), static_cast<char>('a' + r % 26));
    expect(all[static_cast<std::size_t>(r)] == expected, "value {} is '{}'", r,
           all[static_cast<std::size_t>(r)]);
  }
  agree(comm, "open", "");
  const int last = comm.size() - 1;
  const std::string text =
      message_of([&] { agree(comm, "open", comm.rank() == last ? "there is no file a.nc" : ""); });
  expect(contains(text, "there is no file a.nc"), "{}", text);
  expect(comm.size() == 1 || contains(text, fmt::format("(on rank {} of {})", last, comm.size())), "{}",
         text);
}

void interleaved_groups(const Communicator& comm) {
  const int size = comm.size();
  std::vector<int> backwards(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) backwards[static_cast<std::size_t>(r)] = size - 1 - r;
  const Communicator reversed = comm.subgroup({backwards});
  expect(reversed.rank() == size - 1 - comm.rank(), "reversed rank is {}", reversed.rank());
  const Communicator half = comm.split(comm.rank() % 2, -comm.rank());
  expect(half.size() == (size + 1 - comm.rank() % 2) / 2, "half has {} ranks", half.size());

  const std::int64_t n = 20'000;  // long enough for two rounds
  std::vector<Array> arrays;
  std::vector<Work> works;
  const Communicator groups[] = {comm, reversed, half};
  for (int i = 0; i < 4; ++i) {
    for (const Communicator& group : groups) {
      arrays.push_back(contribution(group.rank(), {i == 0 ? 3 : n}, DType::F32));
      works.push_back(group.all_reduce(arrays.back(), ReduceOp::Sum));
    }
  }
  std::vector<std::size_t> order(works.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(static_cast<unsigned>(comm.rank()));
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t i : order) works[i].wait();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const int ranks = groups[i % 3].size();
    expect(equal(arrays[i], reduced(ranks, arrays[i].sizes(), DType::F32, ReduceOp::Sum)), "work {} is wrong",
           i);
  }
}

}  // namespace tessera::comm_cases
