// The list of calls holds every operation of the library: what the tests of refusals walk is complete.
#include <catch2/catch.hpp>

#include <set>

#include "tests/every_call.h"
#include "verify/programs.h"

using namespace tessera;

TEST_CASE("the list of calls has every operation") {
  std::set<std::string> listed;
  for (const every_call::EveryCall& c : every_call::every_call()) {
    INFO(c.name);
    CHECK(listed.insert(c.name).second);
  }
  std::set<std::string> expected = verify::op_names();
  // Of which there are no case files.
  expected.insert(
      {"eq", "ne", "lt", "le", "gt", "ge", "to", "sign", "affine", "contiguous", "dropout", "vector_norm"});
  CHECK(listed == expected);
}
