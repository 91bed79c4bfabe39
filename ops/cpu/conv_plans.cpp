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
    const std::size_t space = line.rfind(' ');
    ConvWay way{};
    const bool good = space != std::string::npos && parse_way(line.substr(space + 1), way) &&
                      std::count(line.begin(), line.end(), ' ') == kWords - 1;
    TS_CHECK(good, kOp,
             "line {} of '{}' is '{}'; {} words that describe a convolution and one of channels_last, any "
             "and own are needed",
             number, path, line, kWords - 1);
    ways.emplace(line.substr(0, space), way);
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
  const Ways read = parse(LockedFile(path, O_RDONLY | O_CLOEXEC, LOCK_SH).read(), path);
  const std::lock_guard lock(mutex_);
  ways_.insert(read.begin(), read.end());
  ++generation_;
}

void ConvPlans::save(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const LockedFile file(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, LOCK_EX);
  const std::string text = file.read();
  const Ways there = parse(text, path);
  std::string added = text.empty() ? std::string(kFirstLine) + '\n' : std::string();
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
