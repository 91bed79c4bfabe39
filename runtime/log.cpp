#include "runtime/log.h"

#include <atomic>
#include <mutex>
#include <string>

#include "runtime/environment.h"
#include "runtime/error.h"

namespace tessera {
namespace {

LogLevel level_from_environment() {
  const std::string_view name = environment_choice("TESSERA_LOG", {"error", "warn", "info", "debug"});
  if (name == "error") return LogLevel::Error;
  if (name == "warn") return LogLevel::Warn;
  if (name == "debug") return LogLevel::Debug;
  return LogLevel::Info;
}

bool all_from_environment() { return environment_choice("TESSERA_LOG_RANKS", {"all"}) == "all"; }

struct LogState {
  std::atomic<LogLevel> level{level_from_environment()};
  std::atomic<bool> all_ranks{all_from_environment()};
  std::atomic<std::FILE*> file{nullptr};
  std::mutex mutex;
};
// Never destroyed: destructors of static objects may still log.
LogState& state() {
  static auto* instance = new LogState;
  return *instance;
}

std::string_view prefix_of(LogLevel level) {
  switch (level) {
    case LogLevel::Error:
      return "error: ";
    case LogLevel::Warn:
      return "warning: ";
    case LogLevel::Debug:
      return "debug: ";
    case LogLevel::Info:
      break;
  }
  return "";
}

}  // namespace

LogLevel log_level() { return state().level.load(std::memory_order_relaxed); }
void set_log_level(LogLevel level) { state().level = level; }
void set_log_all_ranks(bool all) { state().all_ranks = all; }
void set_log_file(std::FILE* file) { state().file = file; }

bool log_enabled(LogLevel level) {
  LogState& s = state();
  if (level > s.level.load(std::memory_order_relaxed)) return false;
  return level == LogLevel::Error || s.all_ranks.load(std::memory_order_relaxed) || rank_label().rank == 0;
}

void log_line(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  LogState& s = state();
  const RankLabel label = rank_label();
  std::string line;
  if (label.rank > 0 || (s.all_ranks && label.size > 1))
    line = fmt::format("[rank {}/{}] ", label.rank, label.size);
  line += prefix_of(level);
  line += message;
  line += '\n';
  std::lock_guard lock(s.mutex);
  std::FILE* file = s.file.load() != nullptr ? s.file.load() : stderr;
  std::fwrite(line.data(), 1, line.size(), file);
  std::fflush(file);
}

}  // namespace tessera
