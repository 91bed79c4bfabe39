// Pooling and maps along dims on the device.
#include <bit>
#include <mutex>

#include "ops/cuda/register.h"
#include "ops/cuda/window_kernels.h"
#include "ops/window/window_kernels.h"
#include "runtime/cuda/array_walk.h"
#include "runtime/error.h"
#include "runtime/graph_capture.h"

namespace tessera::cuda {
namespace {

// first, index, weight: one array of eight-byte numbers, uploaded once.
Array upload(const cpu::SparseRows& rows) {
  refuse_in_capture("map along dims", "tables of this shape are made for the first time",
                    "run the step once before the capture");
  const std::size_t entries = rows.index.size();
  const Array host = Array::empty({static_cast<std::int64_t>(rows.first.size() + 2 * entries)}, DType::I64);
  std::int64_t* at = host.data<std::int64_t>();
  for (const std::int64_t f : rows.first) *at++ = f;
  for (const std::int64_t i : rows.index) *at++ = i;
  for (const double w : rows.weight) *at++ = std::bit_cast<std::int64_t>(w);
  return host.to(Device::Cuda);
}

DeviceRows in(const Array& copy, const cpu::SparseRows& of, std::int64_t rows) {
  const auto* first = static_cast<const std::int64_t*>(copy.raw());
  const std::int64_t* index = first + rows + 1;
  return {first, index, reinterpret_cast<const double*>(index + of.index.size())};
}

std::int64_t length_of(const cpu::SparseRows& of, std::int64_t rows) {
  return rows + 1 + 2 * static_cast<std::int64_t>(of.index.size());
}

// Plans are shared by all calls of a shape, on any thread.
std::mutex& copies_mutex() {
  static std::mutex mutex;
  return mutex;
}

// The copy that a plan keeps, made where there is none of that length: without the lock, since an upload may
// wait for the device, and other calls of this thread run meanwhile.
template <class Make>
Array kept(Array& copy, std::int64_t length, Make make) {
  const auto fits = [&] { return copy.defined() && copy.numel() == length; };
  {
    const std::lock_guard lock(copies_mutex());
    if (fits()) return copy;
  }
  const Array made = make();
  const std::lock_guard lock(copies_mutex());
  if (!fits()) copy = made;
  return copy;
}

DeviceRows on_device(const cpu::SparseRows& rows) {
  const Array copy = kept(rows.copies.rows, length_of(rows, rows.rows()), [&] { return upload(rows); });
  return in(copy, rows, rows.rows());
}

DeviceRows transposed_on_device(const cpu::SparseRows& rows, std::int64_t columns) {
  const Array copy = kept(rows.copies.transposed, length_of(rows, columns),
                          [&] { return upload(cpu::transposed(rows, columns)); });
  return in(copy, rows, columns);
}

Map5 five(const Array& a) {
  Map5 m;
  if (!a.defined()) return m;
  TS_CHECK(a.numel() <= kElementsOfMap, "max_pool", "a map of {} elements; a device takes {}", a.numel(),
           kElementsOfMap);
  m.elements = elements_of(a);
  for (int d = 0; d < 5; ++d) {
    m.size[d] = a.size(d);
    m.stride[d] = a.stride(d);
  }
  return m;
}

PoolGeometry geometry_of(const cpu::PooledMap& at) {
  PoolGeometry g;
  for (int d = 0; d < 3; ++d) {
    g.base[d] = at.base[d];
    g.map[d] = at.map[d];
  }
  return g;
}

void apply_rows_cuda(const cpu::ApplyRowsArgs& args) {
  if (args.y.numel() == 0) return;
  apply_rows({elements_of(args.y), elements_of(args.x), args.y.size(0), args.y.size(1), args.x.size(1),
              args.y.size(2), on_device(*args.rows)},
             current_stream());
  check_launch("apply_rows");
}

// With what lies between in memory: threads of the second matrix read what others of the first have written.
void apply_two_rows_cuda(const cpu::ApplyTwoRowsArgs& args) {
  if (args.y.numel() == 0) return;
  const Array between = Array::empty({args.x.size(0), args.y.size(1), args.x.size(2), args.x.size(3)},
                                     args.x.dtype(), Device::Cuda);
  apply_rows_cuda({between.reshape({args.x.size(0), args.y.size(1), args.x.size(2) * args.x.size(3)}),
                   args.x.reshape({args.x.size(0), args.x.size(1), args.x.size(2) * args.x.size(3)}),
                   args.outer});
  const std::int64_t outer = args.y.size(0) * args.y.size(1);
  apply_rows_cuda({args.y.reshape({outer, args.y.size(2), args.y.size(3)}),
                   between.reshape({outer, args.x.size(2), args.x.size(3)}), args.inner});
}

void max_pool_cuda(const cpu::MaxPoolArgs& args) {
  if (args.y.numel() == 0) return;
  PoolGeometry g = geometry_of(args.at);
  for (std::size_t d = 0; d < 3; ++d) g.rows[d] = on_device(*args.rows[d]);
  max_pool(five(args.y), five(args.indices), five(args.x), g, current_stream());
  check_launch("max_pool");
}

void scatter_max_cuda(const cpu::ScatterMaxArgs& args) {
  if (args.buffer.numel() == 0) return;
  PoolGeometry g = geometry_of(args.at);
  for (std::size_t d = 0; d < 3; ++d)
    g.rows[d] = transposed_on_device(*args.rows[d], args.buffer.size(static_cast<int>(d) + 2));
  scatter_max(five(args.buffer), five(args.y), five(args.indices), g, current_stream());
  check_launch("scatter_max");
}

void gather_max_cuda(const cpu::ScatterMaxArgs& args) {
  if (args.y.numel() == 0) return;
  gather_max(five(args.buffer), five(args.y), five(args.indices), geometry_of(args.at), current_stream());
  check_launch("gather_max");
}

}  // namespace

void register_windows() {
  kernels::max_pool.set(Device::Cuda, &max_pool_cuda);
  kernels::scatter_max.set(Device::Cuda, &scatter_max_cuda);
  kernels::gather_max.set(Device::Cuda, &gather_max_cuda);
  kernels::apply_rows.set(Device::Cuda, &apply_rows_cuda);
  kernels::apply_two_rows.set(Device::Cuda, &apply_two_rows_cuda);
}

}  // namespace tessera::cuda
