// mpirun -n 3 ops_table FILE: writes what every operation communicates; --check compares instead.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "comm/communicator.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "train/program.h"
#include "verify/ops_table.h"

using namespace tessera;

namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The first line that differs, for people.
std::string first_difference(const std::string& stored, const std::string& found) {
  std::istringstream a(stored);
  std::istringstream b(found);
  std::string x;
  std::string y;
  for (int line = 1; true; ++line) {
    const bool more_a = static_cast<bool>(std::getline(a, x));
    const bool more_b = static_cast<bool>(std::getline(b, y));
    if (!more_a && !more_b) return "";
    if (!more_a) x = "(end)";
    if (!more_b) y = "(end)";
    if (x != y) return fmt::format("line {}:\n  stored: {}\n  found:  {}", line, x, y);
  }
}

int body(Runtime& runtime, int argc, char** argv) {
  const bool check = argc == 3 && std::string_view(argv[1]) == "--check";
  TS_CHECK(runtime.size() == 3 && (argc == 2 || check), "ops_table",
           "start as: mpirun -n 3 ops_table [--check] FILE ({} ranks given)", runtime.size());
  const std::string path = argv[argc - 1];
  const DeviceMesh mesh(runtime.world(), {{"domain", runtime.size()}});
  const std::string text = verify::ops_document(mesh);
  std::string fault;
  if (runtime.rank() == 0) {
    if (check) {
      fault = first_difference(read_file(path), text);
    } else if (!(std::ofstream(path) << text)) {
      fault = fmt::format("cannot write {}", path);
    }
  }
  agree(runtime.world(), "ops_table", fault);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, body); }
