#include "runtime/error.h"

#include <string_view>
#include <thread>

namespace tessera {
namespace {

// Threads that were given no label of their own (a reader thread, a helper of the host program) speak for the
// rank of the thread that loaded the library.
const std::thread::id kMainThread = std::this_thread::get_id();
RankLabel process_label;
thread_local RankLabel thread_label{-1, 0};

// "ops/matmul.cpp" out of whatever path the compiler was called with.
std::string_view short_path(std::string_view path) {
  auto slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return path;
  slash = path.rfind('/', slash - 1);
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

RankLabel rank_label() { return thread_label.size > 0 ? thread_label : process_label; }

void set_rank_label(RankLabel label) {
  thread_label = label;
  if (std::this_thread::get_id() == kMainThread) process_label = label;
}

Error::Error(ErrorKind kind, std::string op, std::string message, std::source_location where)
    : kind_(kind), op_(std::move(op)), message_(op_ + ": " + message), rank_(rank_label().rank) {
  const RankLabel label = rank_label();
  if (label.size > 1) what_ = fmt::format("[rank {}/{}] ", label.rank, label.size);
  what_ += fmt::format("{} ({}:{})", message_, short_path(where.file_name()), where.line());
}

void fail(ErrorKind kind, const char* op, std::string message, std::source_location where) {
  throw Error(kind, op, std::move(message), where);
}

}  // namespace tessera
