// Dtype promotion, shapes and the text of errors.
#include <catch2/catch.hpp>

#include "runtime/dtype.h"
#include "runtime/error.h"
#include "runtime/shape.h"

using namespace tessera;
using Catch::Matchers::Contains;

TEST_CASE("promotion follows PyTorch for tensors with dims") {
  CHECK(promote(DType::F32, DType::BF16) == DType::F32);
  CHECK(promote(DType::BF16, DType::I64) == DType::BF16);
  CHECK(promote(DType::F64, DType::BF16) == DType::F64);
  CHECK(promote(DType::I32, DType::I64) == DType::I64);
  CHECK(promote(DType::Bool, DType::I32) == DType::I32);
  CHECK(promote(DType::I64, DType::F32) == DType::F32);
  for (DType a : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::Bool}) {
    CHECK(promote(a, a) == a);
    for (DType b : {DType::F32, DType::I32, DType::Bool}) CHECK(promote(a, b) == promote(b, a));
  }
}

TEST_CASE("shapes") {
  CHECK(contiguous_strides({2, 3, 4}) == Dims{12, 4, 1});
  CHECK(contiguous_strides({}).empty());
  CHECK(numel_of({}) == 1);
  CHECK(numel_of({4, 0}) == 0);
  CHECK_THROWS_WITH(numel_of({std::int64_t{1} << 40, std::int64_t{1} << 40}), Contains("64 bits"));
  CHECK(wrap_dim("op", -1, 3) == 2);
  CHECK(wrap_dim("op", -1, 0) == 0);
  CHECK_THROWS_WITH(wrap_dim("op", 3, 3), Contains("op: dim 3 was given, a tensor of 3 dims allows -3 to 2"));
  CHECK(broadcast_sizes("op", {3, 1, 5}, {4, 1}) == Dims{3, 4, 5});
  CHECK(broadcast_sizes("op", {}, {2, 0}) == Dims{2, 0});
  CHECK(broadcast_sizes("op", {1}, {0}) == Dims{0});
  CHECK_THROWS_WITH(broadcast_sizes("add", {3, 2}, {4, 2}), Contains("add: shapes [3, 2] and [4, 2] do not"));
  Dims d{1, 2, 3};
  d.insert(1, 9);
  CHECK(d.str() == "[1, 9, 2, 3]");
  d.erase(0);
  d.push_back(7);
  CHECK(d == Dims{9, 2, 3, 7});
  CHECK(d.hash() == Dims{9, 2, 3, 7}.hash());
  CHECK_THROWS_AS(Dims({1, 2, 3, 4, 5, 6, 7, 8, 9}), Error);
}

TEST_CASE("errors carry the rank, the source line and a text that is equal on all ranks") {
  set_rank_label({2, 4});
  try {
    TS_CHECK(1 == 2, "op", "{} was given", 5);
    FAIL("not refused");
  } catch (const Error& e) {
    CHECK(e.message() == "op: 5 was given");
    CHECK(e.rank() == 2);
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK_THAT(e.what(), Contains("[rank 2/4] op: 5 was given (tests/runtime_shape_test.cpp:"));
  }
  set_rank_label({0, 1});
}
