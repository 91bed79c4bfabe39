#include "emulated/cudnn_text.h"

#include <sstream>

namespace tessera::emulated {
namespace {

constexpr const char* kMark = "emulated-plan";

// Handles are of one process; a graph says all that a plan needs without them.
bool is_kept(const Attribute& a) { return a.type != CUDNN_TYPE_HANDLE && a.type != CUDNN_TYPE_VOID_PTR; }

void write(std::ostream& out, const Descriptor& d) {
  std::size_t kept = 0;
  for (const auto& [name, a] : d.attributes) kept += is_kept(a) ? 1 : 0;
  out << ' ' << static_cast<int>(d.type) << ' ' << kept;
  for (const auto& [name, a] : d.attributes) {
    if (!is_kept(a)) continue;
    out << ' ' << static_cast<int>(name) << ' ' << static_cast<int>(a.type) << ' ' << a.count << ' '
        << a.bytes.size();
    for (const char c : a.bytes) out << ' ' << static_cast<int>(static_cast<unsigned char>(c));
    out << ' ' << a.children.size();
    for (const auto& child : a.children) write(out, *child);
  }
}

std::shared_ptr<Descriptor> read(std::istream& in) {
  auto d = std::make_shared<Descriptor>();
  int type = 0;
  std::size_t attributes = 0;
  in >> type >> attributes;
  d->type = static_cast<cudnnBackendDescriptorType_t>(type);
  d->finalized = true;
  for (std::size_t i = 0; in && i < attributes; ++i) {
    int name = 0;
    std::size_t bytes = 0;
    std::size_t children = 0;
    Attribute a;
    in >> name >> type >> a.count >> bytes;
    a.type = static_cast<cudnnBackendAttributeType_t>(type);
    for (std::size_t b = 0; in && b < bytes; ++b) {
      int value = 0;
      in >> value;
      a.bytes.push_back(static_cast<char>(value));
    }
    in >> children;
    for (std::size_t c = 0; in && c < children; ++c) a.children.push_back(read(in));
    d->attributes[static_cast<cudnnBackendAttributeName_t>(name)] = std::move(a);
  }
  return d;
}

}  // namespace

std::string to_text(const Descriptor& descriptor) {
  std::ostringstream out;
  out << kMark;
  write(out, descriptor);
  return out.str();
}

std::shared_ptr<Descriptor> from_text(const std::string& text) {
  std::istringstream in(text);
  std::string mark;
  in >> mark;
  if (mark != kMark) return nullptr;
  auto d = read(in);
  return in ? d : nullptr;
}

}  // namespace tessera::emulated
