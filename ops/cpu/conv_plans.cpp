#include "ops/cpu/conv_plans.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "runtime/error.h"
#include "runtime/log.h"

namespace tessera::cpu {

namespace {

constexpr const char* kOp = "convolution plans";
constexpr const char* kFirstLine = "tessera convolution plans 1";
constexpr std::ptrdiff_t kWords = 14;  // of a line, the way included

// A file that is locked against other processes while it is open.
class LockedFile {
 public:
  LockedFile(const std::string& path, int flags, int lock)
      : path_(path), fd_(::open(path.c_str(), flags, 0666)) {
    if (fd_ < 0 || ::flock(fd_, lock) != 0) {
      const std::string why = std::strerror(errno);
      if (fd_ >= 0) ::close(fd_);
      TS_FAIL(Io, kOp, "cannot open '{}': {}", path_, why);
    }
  }
  ~LockedFile() { ::close(fd_); }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  std::string read() const {
    std::string text;
    char buffer[4096];
    for (;;) {
      const ssize_t n = ::read(fd_, buffer, sizeof(buffer));
      if (n < 0) TS_FAIL(Io, kOp, "cannot read '{}': {}", path_, std::strerror(errno));
      if (n == 0) return text;
      text.append(buffer, static_cast<std::size_t>(n));
    }
  }
  void append(const std::string& text) const {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n != static_cast<ssize_t>(text.size()))
      TS_FAIL(Io, kOp, "cannot write '{}': {}", path_, n < 0 ? std::strerror(errno) : "no room");
  }
  void cut_to(std::size_t bytes) const {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
      TS_FAIL(Io, kOp, "cannot write '{}': {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  int fd_;
};

bool parse_way(const std::string& word, ConvWay& way) {
  for (ConvWay w : {ConvWay::ChannelsLast, ConvWay::Any, ConvWay::Own})
    if (word == name_of(w)) {
      way = w;
      return true;
    }
  return false;
}

// False where the line does not describe a choice.
bool parse_line(const std::string& line, std::string& key, ConvWay& way) {
  const std::size_t space = line.rfind(' ');
  if (space == std::string::npos || std::count(line.begin(), line.end(), ' ') != kWords - 1) return false;
  key = line.substr(0, space);
  return parse_way(line.substr(space + 1), way);
}

// Without what a last line has that was not written to its end, as where there was no room or the process was
// ended: its choice is made anew. A last line that lacks only its end gets it.
std::string usable(const std::string& text) {
  const std::size_t end = text.rfind('\n') + 1;
  const std::string last = text.substr(end);
  if (last.empty()) return text;
  std::string key;
  ConvWay way{};
  if (end == 0 ? last == kFirstLine : parse_line(last, key, way)) return text + '\n';
  const bool ours = end > 0 || std::string(kFirstLine).starts_with(last);
  return ours ? text.substr(0, end) : text;
}

}  // namespace

ConvPlans& ConvPlans::process() {
  static ConvPlans plans;
  return plans;
}

ConvPlans::ConvPlans() {
  const char* path = std::getenv("TESSERA_CONV_PLANS");
  if (path == nullptr || *path == '\0') return;
  if (::access(path, F_OK) == 0) load(path);
  path_ = path;
}

ConvPlans::~ConvPlans() {
  if (path_.empty()) return;
  try {
    save(path_);
  } catch (const Error& e) {
    log_warn("{}", e.message());
  }
}

ConvPlans::Ways ConvPlans::parse(const std::string& text, const std::string& path) {
  Ways ways;
  std::istringstream lines(text);
  std::string line;
  std::int64_t number = 0;
  while (std::getline(lines, line)) {
    if (++number == 1) {
      TS_CHECK(line == kFirstLine, kOp, "'{}' does not begin with the line '{}'", path, kFirstLine);
      continue;
    }
    std::string key;
    ConvWay way{};
    const bool good = parse_line(line, key, way);
    TS_CHECK(good, kOp,
             "line {} of '{}' is '{}'; {} words that describe a convolution and one of channels_last, any "
             "and own are needed",
             number, path, line, kWords - 1);
    ways.emplace(key, way);
  }
  return ways;
}

bool ConvPlans::find(const std::string& key, ConvWay& way) {
  const std::lock_guard lock(mutex_);
  const auto found = ways_.find(key);
  if (found == ways_.end()) return false;
  way = found->second;
  return true;
}

void ConvPlans::load(const std::string& path) {
  const Ways read = parse(usable(LockedFile(path, O_RDONLY | O_CLOEXEC, LOCK_SH).read()), path);
  const std::lock_guard lock(mutex_);
  ways_.insert(read.begin(), read.end());
  ++generation_;
}

void ConvPlans::save(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const LockedFile file(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, LOCK_EX);
  const std::string text = file.read();
  const std::string whole = usable(text);
  const Ways there = parse(whole, path);
  if (whole.size() < text.size()) file.cut_to(whole.size());
  std::string added = whole.size() > text.size() ? "\n" : "";
  if (whole.empty()) added = std::string(kFirstLine) + '\n';
  for (const auto& [key, way] : ways_)
    if (there.count(key) == 0) added += key + ' ' + name_of(way) + '\n';
  if (!added.empty()) file.append(added);
}

void ConvPlans::forget() {
  const std::lock_guard lock(mutex_);
  ways_.clear();
  ++generation_;
}

void load_conv_plans(const std::string& path) { ConvPlans::process().load(path); }
void save_conv_plans(const std::string& path) { ConvPlans::process().save(path); }
void forget_conv_plans() { ConvPlans::process().forget(); }

}  // namespace tessera::cpu
