#include "ops/plan_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "runtime/log.h"

namespace tessera {
namespace {

// One byte that differs always changes it: each step is one-to-one in the value so far and in the byte.
std::string checksum(std::string_view text) {
  std::uint64_t h = 14695981039346656037ULL;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return fmt::format("{:016x}", h);
}

std::string to_hex(std::string_view bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}
std::string from_hex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  return bytes;
}

std::string cannot(const char* what, const std::string& path, int error) {
  return fmt::format("cannot {} {}: {}", what, path, std::strerror(error));
}

// Also where the line was not written beyond that.
bool begins_as_plans_do(std::string_view line) {
  const std::string_view begin = PlanFile::kBegin;
  return !line.empty() && line.substr(0, begin.size()) == begin.substr(0, line.size());
}

// Closes itself.
struct File {
  int number;
  ~File() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

std::string plan_file_fault(const std::string& path) {
  struct stat is {};
  // Asked before it is opened: opening a pipe waits.
  if (::stat(path.c_str(), &is) == 0 && !S_ISREG(is.st_mode))
    return fmt::format("{} is {}, no file of plans", path,
                       S_ISDIR(is.st_mode) ? "a folder" : "a device or a pipe");
  const File file{::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)};
  if (file.number < 0) return cannot("read and write", path, errno);
  std::ifstream text(path);
  bool empty = true;
  for (std::string line; std::getline(text, line); empty = empty && line.empty())
    if (begins_as_plans_do(line)) return "";
  if (text.bad()) return fmt::format("cannot read {}", path);
  return empty ? "" : fmt::format("{} is no file of plans", path);
}

std::string append_line(const std::string& path, std::string line) {
  const File file{::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)};
  struct stat is {};
  if (file.number < 0) return cannot("write to", path, errno);
  // One at a time: half of another rank's line would look like one that was not written to its end. A file
  // system without locks lets it pass.
  (void)::flock(file.number, LOCK_EX);
  if (::fstat(file.number, &is) != 0) return cannot("write to", path, errno);
  char last = '\n';
  if (is.st_size > 0 && ::pread(file.number, &last, 1, is.st_size - 1) < 0)
    return cannot("read", path, errno);
  if (last != '\n') line.insert(line.begin(), '\n');
  line += '\n';
  const ssize_t written = ::write(file.number, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return "";
  return cannot("write to", path, written < 0 ? errno : ENOSPC);
}

PlanFile::PlanFile(std::string path, std::string maker) : path_(std::move(path)), maker_(std::move(maker)) {
  if (path_.empty()) return;
  if (const std::string fault = plan_file_fault(path_); !fault.empty()) {
    log_warn("plan cache: {}; plans are not kept", fault);
    path_.clear();
    return;
  }
  if (read(-1) == 0) return;
  const std::int64_t damaged = clear_damaged();
  if (damaged > 0)
    log_warn("plan cache: {} of {} damaged, removed; plans that are missing are made anew",
             damaged == 1 ? "a line" : fmt::format("{} lines", damaged),
             path_ + (damaged == 1 ? " was" : " were"));
}

// Takes what is whole, and counts the lines that are not. They are made empty in the open file `clears` (-1:
// none), which moves no other line: ranks may read and add at the same time.
std::int64_t PlanFile::read(int clears) {
  std::ifstream file(path_, std::ios::binary);
  std::int64_t damaged = 0;
  std::int64_t at = 0;
  std::string line;
  for (; std::getline(file, line); at += std::ssize(line) + 1) {
    if (line.empty() || take(line)) continue;
    ++damaged;
    const std::string nothing(line.size(), '\n');
    if (clears >= 0 && ::pwrite(clears, nothing.data(), nothing.size(), at) < 0) clears = -1;
  }
  return damaged;
}

// How many this rank has to warn of. While no other one writes: what was half written is whole by now, and
// what another rank has cleared it has warned of. Where files have no locks nothing is cleared.
std::int64_t PlanFile::clear_damaged() {
  const File file{::open(path_.c_str(), O_RDWR | O_CLOEXEC)};
  const bool alone = file.number >= 0 && ::flock(file.number, LOCK_EX) == 0;
  return read(alone ? file.number : -1);
}

// False where it is damaged.
bool PlanFile::take(const std::string& line) {
  const std::size_t graph = line.find('\t');
  if (graph == std::string::npos) return false;
  if (line.compare(0, graph, maker_) != 0) return true;
  const std::size_t bytes = line.find('\t', graph + 1);
  const std::size_t sum = line.rfind('\t');
  if (bytes == std::string::npos || sum <= bytes || line.substr(sum + 1) != checksum({line.data(), sum}))
    return false;
  kept_[line.substr(graph + 1, bytes - graph - 1)] = line.substr(bytes + 1, sum - bytes - 1);
  return true;
}

std::optional<std::string> PlanFile::find(const std::string& graph) const {
  const auto at = kept_.find(graph);
  if (at == kept_.end()) return std::nullopt;
  return from_hex(at->second);
}

bool PlanFile::wants(const std::string& graph) {
  if (path_.empty() || kept_.count(graph) != 0) return false;
  const std::lock_guard lock(mutex_);
  return writes_ && added_.insert(std::hash<std::string>()(graph)).second;
}

void PlanFile::add(const std::string& graph, const std::string& bytes) {
  const std::string text = maker_ + '\t' + graph + '\t' + to_hex(bytes);
  const std::string fault = append_line(path_, text + '\t' + checksum(text));
  if (fault.empty()) return;
  const std::lock_guard lock(mutex_);
  if (std::exchange(writes_, false)) log_warn("plan cache: {}; no more plans are kept", fault);
}

}  // namespace tessera
