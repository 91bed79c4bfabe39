#include "examples/maps/files.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "runtime/error.h"

namespace tessera::maps {

std::string find_ferret_file(const char* op, const std::string& given, const std::string& name) {
  if (!given.empty()) return given;
  std::vector<std::string> places;
  // Ferret's own list of folders, separated by blanks.
  if (const char* folders = std::getenv("FER_DATA")) {
    std::string text(folders);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      if (end > at) places.push_back(text.substr(at, end - at) + "/" + name);
      at = end + 1;
    }
  }
  for (const char* folder :
       {"/usr/share/ferret-vis/data", "/usr/share/ferret-datasets/data", "/usr/share/ferret/data"})
    places.push_back(std::string(folder) + "/" + name);
  std::string looked;
  for (const std::string& place : places) {
    if (std::error_code ignored; std::filesystem::exists(place, ignored)) return place;
    looked += (looked.empty() ? "" : ", ") + place;
  }
  TS_FAIL(Io, op,
          "{} is not installed (Debian package ferret-datasets; or give its path by --data); looked for {}",
          name, looked);
}

std::string find_on_all(const Communicator& world, const char* op, const std::string& given,
                        const std::string& name) {
  std::string path;
  std::string missing;
  try {
    path = find_ferret_file(op, given, name);
  } catch (const Error& e) {
    missing = e.message().substr(e.op().size() + 2);  // agree() names the program again
  }
  agree(world, op, missing);
  return path;
}

void write_text(const char* op, const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text << std::flush;
  if (!out) TS_FAIL(Io, op, "file '{}' cannot be written: {}", path, std::strerror(errno));
}

}  // namespace tessera::maps
