// One error type for the whole library.
//
// A wrong call is refused with what was called, what was given and what is allowed. The text of an error
// that follows from shapes, specs and arguments is the same on every rank, because every rank works it out
// from the same facts; `message()` is that text, `what()` adds the rank and the source line.
#pragma once
#include <fmt/core.h>

#include <exception>
#include <source_location>
#include <string>

namespace tessera {

enum class ErrorKind { Usage, Shape, Dtype, Unsupported, Backend, Comm, Io, Internal };

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string op, std::string message,
        std::source_location where = std::source_location::current());

  const char* what() const noexcept override { return what_.c_str(); }
  ErrorKind kind() const { return kind_; }
  const std::string& op() const { return op_; }
  // "op: message", without rank or source line: equal on every rank when the fault is.
  const std::string& message() const { return message_; }
  int rank() const { return rank_; }

 private:
  ErrorKind kind_;
  std::string op_;
  std::string message_;
  std::string what_;
  int rank_;
};

// The rank that errors and log lines of this thread carry (set by Runtime and by virtual ranks).
struct RankLabel {
  int rank = 0;
  int size = 1;
};
RankLabel rank_label();
void set_rank_label(RankLabel label);

[[noreturn]] void fail(ErrorKind kind, const char* op, std::string message,
                       std::source_location where = std::source_location::current());

}  // namespace tessera

// TS_CHECK(condition, "op", "format with {}", args...): refuses a call (kind Usage).
#define TS_CHECK(condition, op, ...)                                                \
  do {                                                                              \
    if (!(condition)) [[unlikely]]                                                  \
      ::tessera::fail(::tessera::ErrorKind::Usage, op, ::fmt::format(__VA_ARGS__)); \
  } while (false)

// TS_FAIL(Kind, "op", "format with {}", args...)
#define TS_FAIL(kind, op, ...) ::tessera::fail(::tessera::ErrorKind::kind, op, ::fmt::format(__VA_ARGS__))
