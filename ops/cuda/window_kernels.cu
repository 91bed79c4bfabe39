#include "ops/cuda/window_kernels.h"

#include <limits>
#include <type_traits>

#include "ops/cuda/index_math.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

// In the order of the CPU's kernel: four products at a time.
template <class T>
struct Apply : Independent {
  Ptr<T> y;
  Ptr<const T> x;
  Ptr<const std::int64_t> first;
  Ptr<const std::int64_t> index;
  Ptr<const double> weight;
  std::int64_t outputs, inputs, inner, total;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= total) return;
    const Division column = divided(i, inner);
    const Division row = divided(column.quotient, outputs);
    const Ptr<const T> from = x + (row.quotient * inputs * inner + column.rest);
    const std::int64_t end = first[row.rest + 1];
    std::int64_t t = first[row.rest];
    T sum = t < end ? four(from, t, end) : T(0);
    for (t += 4; t < end; t += 4) sum = sum + four(from, t, end);
    y[i] = sum;
  }
  TS_DEVICE T four(Ptr<const T> from, std::int64_t t, std::int64_t end) const {
    T s = product(from, t);
    for (std::int64_t k = t + 1; k < end && k < t + 4; ++k) s += product(from, k);
    return s;
  }
  TS_DEVICE T product(Ptr<const T> from, std::int64_t t) const {
    return static_cast<T>(weight[t]) * from[index[t] * inner];
  }
};

template <class T>
struct View5 {
  Ptr<T> data;
  std::int64_t stride[5];
  explicit View5(const Map5& m) : data(static_cast<T*>(m.elements.data)) {
    for (int d = 0; d < 5; ++d) stride[d] = m.stride[d];
  }
  TS_DEVICE std::int64_t offset(const std::int64_t (&at)[5]) const {
    std::int64_t o = 0;
    for (int d = 0; d < 5; ++d) o += at[d] * stride[d];
    return o;
  }
};

// The elements of a map by number, neighbours in memory one after another: channels first where they lie side
// by side.
struct Elements5 {
  std::int64_t size[5];
  std::int64_t total;
  bool channels_last;
  explicit Elements5(const Map5& m) : total(1), channels_last(m.stride[1] == 1 && m.size[1] > 1) {
    for (int d = 0; d < 5; ++d) total *= size[d] = m.size[d];
  }
  // 32 bits are enough (kElementsOfMap), and dividing them is quick.
  TS_DEVICE void place(std::int64_t element, std::int64_t (&at)[5]) const {
    auto i = static_cast<std::uint32_t>(element);
    if (channels_last) i = take(i, 1, at);
    for (int d = 4; d > 1; --d) i = take(i, d, at);
    if (!channels_last) i = take(i, 1, at);
    at[0] = i;
  }

 private:
  TS_DEVICE std::uint32_t take(std::uint32_t i, int d, std::int64_t (&at)[5]) const {
    const auto n = static_cast<std::uint32_t>(size[d]);
    at[d] = i % n;
    return i / n;
  }
};

struct Axis {
  Ptr<const std::int64_t> first;
  Ptr<const std::int64_t> index;
};
struct Geometry {
  Axis axis[3];
  std::int64_t base[3];
  std::int64_t map[3];
  explicit Geometry(const PoolGeometry& g) {
    for (int d = 0; d < 3; ++d) {
      axis[d] = {g.rows[d].first, g.rows[d].index};
      base[d] = g.base[d];
      map[d] = g.map[d];
    }
  }
  TS_DEVICE std::int64_t in_map(std::int64_t d, std::int64_t h, std::int64_t w) const {
    return ((d + base[0]) * map[1] + h + base[1]) * map[2] + w + base[2];
  }
};

// A number is passed over by what is larger and by every NaN.
template <class S>
struct MaxPool : Independent {
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  Elements5 outputs;
  Geometry geometry;
  View5<S> y;
  View5<std::int64_t> indices;
  View5<const S> x;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= outputs.total) return;
    std::int64_t at[5];
    outputs.place(i, at);
    const Ptr<const S> plane = x.data + (at[0] * x.stride[0] + at[1] * x.stride[1]);
    const Axis& depth = geometry.axis[0];
    const Axis& height = geometry.axis[1];
    const Axis& width = geometry.axis[2];
    T best = -std::numeric_limits<T>::infinity();
    std::int64_t found = -1;
    for (std::int64_t a = depth.first[at[2]]; a < depth.first[at[2] + 1]; ++a)
      for (std::int64_t b = height.first[at[3]]; b < height.first[at[3] + 1]; ++b)
        for (std::int64_t c = width.first[at[4]]; c < width.first[at[4] + 1]; ++c) {
          const std::int64_t d = depth.index[a];
          const std::int64_t h = height.index[b];
          const std::int64_t w = width.index[c];
          const T value = static_cast<T>(load(plane[d * x.stride[2] + h * x.stride[3] + w * x.stride[4]]));
          if (found >= 0 && !(value > best || value != value)) continue;
          best = value;
          found = geometry.in_map(d, h, w);
        }
    y.data[y.offset(at)] = convert<S>(best);
    if (indices.data) indices.data[indices.offset(at)] = found;
  }
};

template <class T>
struct ScatterMax : Independent {
  Elements5 positions;
  Geometry geometry;
  View5<T> buffer;
  View5<const T> y;
  View5<const std::int64_t> indices;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= positions.total) return;
    std::int64_t at[5];
    positions.place(i, at);
    const std::int64_t own = geometry.in_map(at[2], at[3], at[4]);
    const std::int64_t to = buffer.offset(at);
    const Axis& depth = geometry.axis[0];
    const Axis& height = geometry.axis[1];
    const Axis& width = geometry.axis[2];
    const Ptr<const T> values = y.data + (at[0] * y.stride[0] + at[1] * y.stride[1]);
    const Ptr<const std::int64_t> found =
        indices.data + (at[0] * indices.stride[0] + at[1] * indices.stride[1]);
    T sum = 0;
    for (std::int64_t a = depth.first[at[2]]; a < depth.first[at[2] + 1]; ++a) {
      const std::int64_t d = depth.index[a];
      for (std::int64_t b = height.first[at[3]]; b < height.first[at[3] + 1]; ++b) {
        const std::int64_t h = height.index[b];
        const Ptr<const T> value_line = values + (d * y.stride[2] + h * y.stride[3]);
        const Ptr<const std::int64_t> line = found + (d * indices.stride[2] + h * indices.stride[3]);
        for (std::int64_t c = width.first[at[4]]; c < width.first[at[4] + 1]; ++c) {
          const std::int64_t w = width.index[c];
          if (line[w * indices.stride[4]] == own) sum += value_line[w * y.stride[4]];
        }
      }
    }
    buffer.data[to] = sum;
  }
};

template <class T>
struct GatherMax : Independent {
  Elements5 outputs;
  Geometry geometry;
  View5<const T> buffer;
  View5<T> y;
  View5<const std::int64_t> indices;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= outputs.total) return;
    std::int64_t at[5];
    outputs.place(i, at);
    const std::int64_t to = y.offset(at);
    const std::int64_t found = indices.data[indices.offset(at)];
    if (found < 0) {
      y.data[to] = T(0);
      return;
    }
    const Division line = divided(found, geometry.map[2]);
    const Division plane = divided(line.quotient, geometry.map[1]);
    at[2] = plane.quotient - geometry.base[0];
    at[3] = plane.rest - geometry.base[1];
    at[4] = line.rest - geometry.base[2];
    y.data[to] = buffer.data[buffer.offset(at)];
  }
};

// f(tag) for f32 and f64.
template <class F>
void dispatch_wide(DType t, const F& f) {
  if (t == DType::F64) {
    f(TypeTag<double>{});
  } else {
    f(TypeTag<float>{});
  }
}

}  // namespace

void apply_rows(const ApplyRows& a, StreamHandle stream) {
  const std::int64_t total = a.outer * a.outputs * a.inner;
  dispatch_wide(a.y.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(Apply<T>{{},
                    static_cast<T*>(a.y.data),
                    static_cast<const T*>(a.x.data),
                    a.rows.first,
                    a.rows.index,
                    a.rows.weight,
                    a.outputs,
                    a.inputs,
                    a.inner,
                    total},
           one_each(total), stream);
  });
}

void max_pool(const Map5& y, const Map5& indices, const Map5& x, const PoolGeometry& geometry,
              StreamHandle stream) {
  const Elements5 outputs(y);
  dispatch_floating(y.elements.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(
        MaxPool<T>{
            {}, outputs, Geometry(geometry), View5<T>(y), View5<std::int64_t>(indices), View5<const T>(x)},
        one_each(outputs.total), stream);
  });
}

void scatter_max(const Map5& buffer, const Map5& y, const Map5& indices, const PoolGeometry& geometry,
                 StreamHandle stream) {
  const Elements5 positions(buffer);
  dispatch_wide(y.elements.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ScatterMax<T>{{},
                         positions,
                         Geometry(geometry),
                         View5<T>(buffer),
                         View5<const T>(y),
                         View5<const std::int64_t>(indices)},
           one_each(positions.total), stream);
  });
}

void gather_max(const Map5& buffer, const Map5& y, const Map5& indices, const PoolGeometry& geometry,
                StreamHandle stream) {
  const Elements5 outputs(y);
  dispatch_wide(y.elements.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(GatherMax<T>{{},
                        outputs,
                        Geometry(geometry),
                        View5<const T>(buffer),
                        View5<T>(y),
                        View5<const std::int64_t>(indices)},
           one_each(outputs.total), stream);
  });
}

}  // namespace tessera::cuda
