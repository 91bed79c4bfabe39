#include "tests/ops_cases.h"

namespace tessera::ops_cases {

void add_windows(std::vector<OpFamily>&) {}

}  // namespace tessera::ops_cases
