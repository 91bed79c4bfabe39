// Redistribution of more than 2^31 elements, 2 ranks (about 9 GB in all, one case after another).
#include <catch2/catch.hpp>

#include "mesh/redistribute.h"
#include "tests/support/world.h"

using namespace tessera;

namespace {

constexpr std::int64_t kColumns = 16;
constexpr std::int64_t kRows = ((std::int64_t{1} << 31) + 16) / kColumns;

bool marked(std::int64_t row, std::int64_t column) { return (row * kColumns + column) % 7 == 3; }

// The elements of this rank: marked ones of the global tensor, and not where they are another rank's term.
Array part_of(const ShardSpec& spec, std::int64_t modulus, std::int64_t rest) {
  const Array a = Array::empty(spec.local_sizes(), DType::Bool);
  const Interval rows = spec.intervals(0).front();
  const Interval columns = spec.intervals(1).front();
  auto* at = a.data<unsigned char>();
  for (std::int64_t r = rows.lo; r < rows.hi; ++r)
    for (std::int64_t c = columns.lo; c < columns.hi; ++c)
      *at++ = marked(r, c) && r % modulus == rest ? 1 : 0;
  return a;
}

std::int64_t wrong_elements(const Array& a, const ShardSpec& spec) {
  const Array dense = a.contiguous();
  const Interval rows = spec.intervals(0).front();
  const Interval columns = spec.intervals(1).front();
  const auto* at = dense.data<unsigned char>();
  std::int64_t wrong = 0;
  for (std::int64_t r = rows.lo; r < rows.hi; ++r)
    for (std::int64_t c = columns.lo; c < columns.hi; ++c)
      wrong += *at++ == static_cast<unsigned char>(marked(r, c)) ? 0 : 1;
  return wrong;
}

void check_move(const Placement& from, const Placement& to) {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const SpecPtr before = ShardSpec::make(mesh, {from}, {kRows, kColumns});
  const SpecPtr after = ShardSpec::make(mesh, {to}, {kRows, kColumns});
  INFO(before->str() << " to " << after->str());
  const Array local = from.is_partial() ? part_of(*before, mesh.size(), mesh.rank()) : part_of(*before, 1, 0);
  const Array moved = redistribute(local, before, after);
  REQUIRE(moved.sizes() == after->local_sizes());
  CHECK(wrong_elements(moved, *after) == 0);
}

}  // namespace

TEST_CASE("more than 2^31 elements gathered") { check_move(Shard(0), Replicate()); }
TEST_CASE("more than 2^31 elements cut along another dim") { check_move(Shard(0), Shard(1)); }
TEST_CASE("more than 2^31 owed elements added up and cut") { check_move(Partial(ReduceOp::Max), Shard(0)); }
