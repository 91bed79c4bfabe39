// Arrays: views, copies between all dtypes and strides against a naive loop, wrapped memory, versions.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <random>

#include "runtime/array.h"
#include "runtime/copy.h"
#include "runtime/error.h"
#include "tests/support/half.h"

using namespace tessera;
using Catch::Matchers::Contains;

namespace {

constexpr DType kAll[] = {DType::F32, DType::F64, DType::BF16, DType::F16,
                          DType::I64, DType::I32, DType::Bool};

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

Array iota(const Dims& sizes, DType dtype = DType::F32) {
  std::vector<double> v(static_cast<std::size_t>(numel_of(sizes)));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i);
  return Array::from(v, sizes, dtype);
}

// What one element becomes, written without the library's converter.
double converted(double value, DType from, DType to) {
  auto as = [](double v, DType t) -> double {
    switch (t) {
      case DType::F32:
        return static_cast<float>(v);
      case DType::F64:
        return v;
      case DType::BF16:
        return static_cast<float>(bf16(static_cast<float>(v)));
      case DType::F16:
        return nearest_f16(static_cast<float>(v));
      case DType::I64:
      case DType::I32:
        return std::trunc(v);
      case DType::Bool:
        return v != 0 ? 1.0 : 0.0;
    }
    return 0;
  };
  return as(as(value, from), to);
}

// A random view over fresh memory: permuted, sliced with steps of either sign, filled with small numbers.
Array random_view(const Dims& sizes, DType dtype, std::mt19937& gen) {
  const int n = sizes.size();
  std::vector<int> order(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
  std::shuffle(order.begin(), order.end(), gen);
  Dims base = Dims::filled(n, 0);
  Dims step = Dims::filled(n, 0);
  for (int i = 0; i < n; ++i) {
    step[i] = static_cast<std::int64_t>(gen() % 5U) - 2;
    if (step[i] == 0) step[i] = 1;
    base[i] = std::max<std::int64_t>(sizes[order[static_cast<std::size_t>(i)]] * std::abs(step[i]), 1) +
              static_cast<std::int64_t>(gen() % 3U);
  }
  Array a = Array::empty(base, dtype);
  std::vector<double> v(static_cast<std::size_t>(a.numel()));
  for (double& x : v) x = static_cast<double>(static_cast<int>(gen() % 401U) - 200) / 4.0;
  a.copy_(Array::from(v, base, DType::F64));
  Dims back = Dims::filled(n, 0);
  for (int i = 0; i < n; ++i) {
    const std::int64_t size = sizes[order[static_cast<std::size_t>(i)]];
    a = a.slice(i, step[i] > 0 || size == 0 ? 0 : base[i] - 1, size, step[i]);
    back[order[static_cast<std::size_t>(i)]] = i;
  }
  return a.permute(back);
}

Dims random_sizes(std::mt19937& gen) {
  const int n = static_cast<int>(gen() % 5U);
  Dims sizes = Dims::filled(n, 0);
  for (auto& s : sizes) s = static_cast<std::int64_t>(gen() % 7U);
  if (n == 2 && gen() % 2U == 0)
    sizes = {static_cast<std::int64_t>(gen() % 80U), static_cast<std::int64_t>(gen() % 80U)};
  return sizes;
}

}  // namespace

TEST_CASE("views") {
  const Array a = iota({3, 4, 5});
  CHECK(a.is_contiguous());
  CHECK(a.at(59) == 59);
  CHECK(a.slice(1, 1, 2).to_vector() == std::vector<double>{5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
                                                            25, 26, 27, 28, 29, 30, 31, 32, 33, 34,
                                                            45, 46, 47, 48, 49, 50, 51, 52, 53, 54});
  CHECK(a.slice(-1, 4, 3, -2).slice(0, 0, 1).slice(1, 0, 1).to_vector() == std::vector<double>{4, 2, 0});
  CHECK(a.box({2, 3, 1}, {1, 1, 2}).to_vector() == std::vector<double>{56, 57});
  CHECK(a.permute({2, 0, 1}).sizes() == Dims{5, 3, 4});
  CHECK(a.permute({2, 0, 1}).is_dense());
  CHECK_FALSE(a.permute({2, 0, 1}).is_contiguous());
  CHECK_FALSE(a.slice(1, 0, 2).is_dense());
  CHECK(a.transpose(0, -1).strides() == Dims{1, 5, 20});
  CHECK(a.unsqueeze(1).sizes() == Dims{3, 1, 4, 5});
  CHECK(a.unsqueeze(-1).is_contiguous());
  CHECK(a.unsqueeze(1).squeeze(1).sizes() == a.sizes());
  CHECK(a.slice(0, 0, 1).expand({2, 4, 5}).strides() == Dims{0, 5, 1});
  CHECK_FALSE(a.slice(0, 0, 1).expand({2, 4, 5}).is_dense());
  CHECK(a.expand({2, 3, 4, 5}).at(60 + 7) == 7);
  CHECK(a.as_strided({2, 2}, {1, 2}, 10).to_vector() == std::vector<double>{10, 12, 11, 13});
}

TEST_CASE("views refuse what is out of bounds") {
  const Array a = iota({3, 4});
  CHECK(message_of([&] { a.slice(1, 2, 3); }) ==
        "slice: dim 1 has size 4; start 2, length 3, step 1 reaches beyond it");
  CHECK_THROWS_AS(a.slice(0, 0, 2, 3), Error);
  CHECK_THROWS_AS(a.slice(0, 1, 3, -1), Error);
  CHECK_THROWS_AS(a.slice(0, 0, 2, 0), Error);
  CHECK_NOTHROW(a.slice(0, 3, 0));
  CHECK_THROWS_AS(a.slice(0, 4, 0), Error);
  CHECK_THROWS_AS(a.box({1, 1}, {3, 1}), Error);
  CHECK_THROWS_AS(a.box({-1, 1}, {1, 1}), Error);
  CHECK_THROWS_AS(a.permute({0, 0}), Error);
  CHECK_THROWS_AS(a.permute({0}), Error);
  CHECK_THROWS_AS(a.expand({3, 5}), Error);
  CHECK_THROWS_AS(a.expand({4}), Error);
  CHECK_THROWS_AS(a.squeeze(0), Error);
  CHECK_THROWS_AS(a.as_strided({4}, {4}, 0), Error);
  CHECK_THROWS_AS(a.as_strided({2}, {-1}, 0), Error);
  CHECK_THROWS_AS(a.reshape({5}), Error);
  CHECK_THROWS_AS(a.at(12), Error);
  CHECK_THROWS_AS(Array::empty({-1}, DType::F32), Error);
  CHECK_THROWS_AS(Array::empty_strided({2, 2}, {4, 1}, DType::F32, Device::Cpu), Error);
  CHECK_NOTHROW(Array::empty_strided({2, 3}, {1, 2}, DType::F32, Device::Cpu));
}

TEST_CASE("empty and 0-dim arrays are ordinary") {
  const Array none = Array::zeros({3, 0, 2}, DType::F64);
  CHECK(none.numel() == 0);
  CHECK(none.is_contiguous());
  CHECK(none.clone().to_vector().empty());
  CHECK(none.reshape({0, 7}).sizes() == Dims{0, 7});
  CHECK(none.permute({1, 2, 0}).contiguous().sizes() == Dims{0, 2, 3});
  CHECK(none.slice(0, 1, 2).sizes() == Dims{2, 0, 2});
  none.copy_(Array::zeros({}, DType::F32));
  const Array one = Array::full({}, 2.5, DType::F32);
  CHECK(one.dim() == 0);
  CHECK(one.numel() == 1);
  CHECK(one.at(0) == 2.5);
  CHECK(one.expand({2, 2}).to_vector() == std::vector<double>(4, 2.5));
  CHECK(one.reshape({1, 1}).sizes() == Dims{1, 1});
  CHECK(one.unsqueeze(0).sizes() == Dims{1});
  CHECK(one.transpose(0, 0).dim() == 0);
}

TEST_CASE("reshape is a view where the strides allow it") {
  const Array a = iota({2, 3, 4});
  auto check = [](const Array& from, const Dims& sizes, bool view) {
    const Array out = from.reshape(sizes);
    CHECK((out.storage() == from.storage()) == view);
    CHECK(out.to_vector() == from.to_vector());
    CHECK(out.sizes() == sizes);
  };
  check(a, {6, 4}, true);
  check(a.slice(2, 0, 2), {6, 2}, true);
  check(a.slice(2, 0, 2), {2, 3, 2, 1}, true);
  check(a.slice(2, 0, 2), {12}, false);
  check(a.slice(1, 0, 2), {2, 8}, true);
  check(a.slice(1, 0, 2), {2, 1, 2, 2, 2}, true);
  check(a.slice(1, 0, 2), {4, 4}, false);
  check(a.permute({1, 0, 2}), {3, 8}, false);
  check(a.permute({1, 0, 2}), {3, 2, 2, 2}, true);
  check(a.slice(0, 0, 1).expand({5, 3, 4}), {5, 12}, true);
  check(a.slice(0, 0, 1).expand({5, 3, 4}), {60}, false);
  check(Array::full({1}, 3, DType::F32).expand({6}), {2, 3}, true);
}

TEST_CASE("copies between all dtypes and random strides equal a naive loop") {
  std::mt19937 gen(7);
  for (DType d : kAll) {
    for (DType s : kAll) {
      for (int round = 0; round < 40; ++round) {
        const Dims sizes = random_sizes(gen);
        const Array dst = random_view(sizes, d, gen);
        const Array src = random_view(sizes, s, gen);
        const std::vector<double> before = src.to_vector();
        copy_strided(dst, src);
        bool equal = true;
        for (std::int64_t i = 0; i < dst.numel(); ++i)
          equal = equal && dst.at(i) == converted(before[static_cast<std::size_t>(i)], s, d);
        INFO(name_of(d) << " from " << name_of(s) << " " << sizes.str() << dst.strides().str()
                        << src.strides().str());
        REQUIRE(equal);
        REQUIRE(src.to_vector() == before);
      }
    }
  }
}

TEST_CASE("copies touch nothing but their target") {
  std::mt19937 gen(11);
  for (int round = 0; round < 200; ++round) {
    const Array base = iota({9, 8, 7});
    const Dims lo{static_cast<std::int64_t>(gen() % 5U), static_cast<std::int64_t>(gen() % 4U),
                  static_cast<std::int64_t>(gen() % 3U)};
    const Dims extent{static_cast<std::int64_t>(gen() % 5U), static_cast<std::int64_t>(gen() % 5U),
                      static_cast<std::int64_t>(gen() % 5U)};
    Array view = base.box(lo, extent);
    if (round % 2 == 1) view = view.permute({2, 0, 1});
    view.fill_(-1);
    std::int64_t changed = 0;
    for (std::int64_t i = 0; i < base.numel(); ++i) {
      if (base.at(i) == -1)
        ++changed;
      else
        REQUIRE(base.at(i) == static_cast<double>(i));
    }
    REQUIRE(changed == numel_of(extent));
  }
}

TEST_CASE("transposes of every small size write all of their box and nothing beside it") {
  for (DType d : {DType::Bool, DType::BF16, DType::F32, DType::F64}) {
    for (std::int64_t rows : {1, 7, 8, 15, 16, 17, 31, 32, 33, 40, 65}) {
      for (std::int64_t columns = 1; columns <= 66; ++columns) {
        const Array source = iota({columns, rows}, DType::F32).to(d);
        const Array memory = Array::empty({rows + 2, columns + 2}, d);
        memory.fill_(1);
        const Array target = memory.box({1, 1}, {rows, columns});
        copy_strided(target, source.transpose(0, 1));
        bool equal = true;
        for (std::int64_t i = 0; i < rows + 2; ++i)
          for (std::int64_t j = 0; j < columns + 2; ++j) {
            const bool inside = i > 0 && i <= rows && j > 0 && j <= columns;
            equal = equal &&
                    memory.at(i * (columns + 2) + j) == (inside ? source.at((j - 1) * rows + i - 1) : 1.0);
          }
        INFO(name_of(d) << " " << rows << " x " << columns);
        REQUIRE(equal);
      }
    }
  }
}

TEST_CASE("large transposes and rows, on several threads") {
  const Array a = iota({300, 517}, DType::F32);
  const Array t = a.transpose(0, 1).contiguous();
  bool equal = true;
  for (std::int64_t i = 0; i < 517; i += 7)
    for (std::int64_t j = 0; j < 300; j += 3) equal = equal && t.at(i * 300 + j) == a.at(j * 517 + i);
  CHECK(equal);
  const Array wide = iota({200003}, DType::F64);
  const Array narrow = wide.slice(0, 200002, 200003, -1).to(DType::I32);
  CHECK(narrow.at(0) == 200002);
  CHECK(narrow.at(200002) == 0);
  CHECK(narrow.at(100001) == 100001);
  const Array nchw = iota({4, 3, 64, 130}, DType::BF16);
  CHECK(nchw.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}).to_vector() == nchw.to_vector());
  CHECK(nchw.permute({0, 2, 3, 1}).to(DType::F32).permute({0, 3, 1, 2}).to_vector() == nchw.to_vector());
}

TEST_CASE("add_into for all dtypes and strides") {
  std::mt19937 gen(3);
  for (DType d : kAll) {
    for (DType s : {d, DType::F32}) {
      for (int round = 0; round < 20; ++round) {
        const Dims sizes = random_sizes(gen);
        const Array dst = random_view(sizes, d, gen);
        const Array src = random_view(sizes, s, gen);
        const std::vector<double> x = dst.to_vector();
        const std::vector<double> y = src.to_vector();
        add_into(dst, src);
        bool equal = true;
        for (std::size_t i = 0; i < x.size(); ++i)
          equal =
              equal && dst.at(static_cast<std::int64_t>(i)) == converted(x[i] + converted(y[i], s, d), d, d);
        REQUIRE(equal);
      }
    }
  }
  CHECK_THROWS_WITH(add_into(iota({2}), iota({3})), Contains("they must be equal"));
  CHECK_THROWS_WITH(add_into(iota({1}).expand({3}), iota({3})), Contains("expanded"));
}

TEST_CASE("copy_ broadcasts, converts and is right when views overlap") {
  const Array a = Array::zeros({2, 3}, DType::I64);
  a.copy_(Array::from(std::vector<double>{1.9, -2.9, 0}, {3}, DType::F64));
  CHECK(a.to_vector() == std::vector<double>{1, -2, 0, 1, -2, 0});
  const Array x = iota({10});
  x.slice(0, 1, 9).copy_(x.slice(0, 0, 9));
  CHECK(x.to_vector() == std::vector<double>{0, 0, 1, 2, 3, 4, 5, 6, 7, 8});
  const Array y = iota({5});
  y.copy_(y.slice(0, 4, 5, -1));
  CHECK(y.to_vector() == std::vector<double>{4, 3, 2, 1, 0});
  const Array m = iota({40, 40});
  m.copy_(m.transpose(0, 1));
  CHECK(m.at(1) == 40);
  CHECK(m.at(40) == 1);
  m.copy_(m);
  CHECK(m.at(1) == 40);
  // Two wraps of one memory are different storages over the same bytes.
  float raw[4] = {1, 2, 3, 4};
  const Array p = Array::wrap(raw, {3}, {1}, DType::F32);
  const Array q = Array::wrap(raw + 1, {3}, {1}, DType::F32);
  q.copy_(p);
  CHECK(q.to_vector() == std::vector<double>{1, 2, 3});
  CHECK_THROWS_WITH(iota({1}).expand({2}).copy_(iota({2})), Contains("expanded"));
  CHECK_THROWS_WITH(iota({2}).copy_(iota({3})), Contains("cannot be expanded"));
}

TEST_CASE("to, clone, contiguous") {
  const Array a = iota({2, 3});
  CHECK(a.to(DType::F32).storage() == a.storage());
  CHECK(a.contiguous().storage() == a.storage());
  CHECK(a.clone().storage() != a.storage());
  const Array t = a.transpose(0, 1);
  CHECK(t.contiguous().is_contiguous());
  CHECK(t.contiguous().to_vector() == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK(Array::full({1}, 0.1, DType::F64).to(DType::BF16).at(0) == static_cast<float>(bf16(0.1F)));
  CHECK(Array::full({1}, std::nan(""), DType::F32).to(DType::Bool).at(0) == 1);
}

TEST_CASE("wrapped memory: any strides, and its deleter runs once, with the pointer that was given") {
  std::vector<float> values{0, 1, 2, 3, 4, 5};
  int deleted = 0;
  void* seen = nullptr;
  {
    Array kept;
    {
      const Array a = Array::wrap(values.data() + 5, {2, 3}, {-3, -1}, DType::F32, {}, Device::Cpu);
      CHECK(a.to_vector() == std::vector<double>{5, 4, 3, 2, 1, 0});
      const Array b = Array::wrap(values.data() + 3, {2, 3}, {-3, 1}, DType::F32, [&](void* p) {
        ++deleted;
        seen = p;
      });
      CHECK(b.to_vector() == std::vector<double>{3, 4, 5, 0, 1, 2});
      kept = b.slice(0, 1, 1).transpose(0, 1);
      CHECK_THROWS_AS(b.as_strided({7}, {1}, 0), Error);
      CHECK(b.as_strided({6}, {1}, 0).at(0) == 0);
    }
    CHECK(deleted == 0);
    kept.fill_(9);
  }
  CHECK(deleted == 1);
  CHECK(seen == values.data() + 3);
  CHECK(values == std::vector<float>{9, 9, 9, 3, 4, 5});
  const Array e = Array::wrap(values.data(), {4, 2}, {0, 1}, DType::F32);
  CHECK(e.to_vector() == std::vector<double>{9, 9, 9, 9, 9, 9, 9, 9});
  CHECK_THROWS_AS(Array::wrap(nullptr, {1}, {1}, DType::F32), Error);
  const Array nothing = Array::wrap(nullptr, {0}, {1}, DType::F32, [&](void*) { ++deleted; });
  CHECK(nothing.numel() == 0);
  // A Bool array may wrap bytes that are not 0 or 1.
  unsigned char bytes[3] = {0, 2, 255};
  CHECK(Array::wrap(bytes, {3}, {1}, DType::Bool).to(DType::I32).to_vector() == std::vector<double>{0, 1, 1});
}

TEST_CASE("every write through the public interface bumps the version of the storage") {
  const Array a = Array::zeros({4}, DType::F32);
  const auto v0 = a.version();
  a.fill_(1);
  CHECK(a.version() == v0 + 1);
  a.slice(0, 0, 2).copy_(Array::zeros({2}, DType::F32));
  CHECK(a.version() == v0 + 2);
  a.zero_();
  CHECK(a.slice(0, 1, 1).version() == v0 + 3);
  a.clone();
  a.reshape({2, 2}).to_vector();
  CHECK(a.version() == v0 + 3);
}

TEST_CASE("meta arrays have shapes and versions but no memory") {
  const Array a = Array::zeros({1 << 20, 1 << 20}, DType::F32, Device::Meta);
  CHECK(a.storage()->data() == nullptr);
  CHECK(a.nbytes() == std::int64_t{1} << 42);
  const Array b = a.transpose(0, 1).contiguous();
  CHECK(b.device() == Device::Meta);
  const auto v = b.version();
  b.copy_(a);
  b.fill_(3);
  CHECK(b.version() == v + 2);
  CHECK(a.to(DType::F64).device() == Device::Meta);
  CHECK_THROWS_AS(a.at(0), Error);
  CHECK_THROWS_WITH(Array::empty({2}, DType::F32, Device::Cuda),
                    Contains("no memory backend for device cuda"));
}
