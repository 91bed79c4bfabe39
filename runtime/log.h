// Log lines on stderr.
//
//   log_info("step {} loss {:.4f}", step, loss);
//
// Ranks run the same program, so by default rank 0 alone speaks; errors come from every rank. The environment
// sets what is seen: TESSERA_LOG=error|warn|info|debug (default info) and TESSERA_LOG_RANKS=all. A line
// carries
// "[rank r/n]" where its origin is in doubt: from ranks above 0, and from all ranks when all of them print.
// Each line is written with one call and flushed, so lines of different ranks and threads do not mix.
#pragma once
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

namespace tessera {

enum class LogLevel : int { Error, Warn, Info, Debug };

LogLevel log_level();
void set_log_level(LogLevel level);
void set_log_all_ranks(bool all);
// Where lines go (default stderr); the caller keeps `file` open. nullptr: stderr again.
void set_log_file(std::FILE* file);

// True if this rank prints lines of this level: guards work that only serves a message.
bool log_enabled(LogLevel level);
// One message; line breaks inside it stay.
void log_line(LogLevel level, std::string_view message);

template <class... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::Error, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::Warn, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::Info, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::Debug, format, std::forward<Args>(args)...);
}

}  // namespace tessera
