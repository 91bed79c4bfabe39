#include "verify/program_table.h"

namespace tessera::verify {

void add_windows(OpTable&) {}

}  // namespace tessera::verify
