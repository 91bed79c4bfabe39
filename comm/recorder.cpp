#include "comm/recorder.h"

namespace tessera {

namespace {
thread_local const char* current_scope = "";
}

CommScope::CommScope(const char* name) : previous_(current_scope) { current_scope = name; }
CommScope::~CommScope() { current_scope = previous_; }
const char* CommScope::current() { return current_scope; }

void Recorder::add(const CommRecord& record) {
  ++totals_.calls;
  totals_.messages += record.messages;
  totals_.bytes += record.bytes;
  if (keep_) records_.push_back(record);
}

std::int64_t Recorder::count(std::string_view kind) const {
  std::int64_t n = 0;
  for (const CommRecord& r : records_) n += r.kind == kind ? 1 : 0;
  return n;
}

std::int64_t Recorder::bytes(std::string_view kind) const {
  std::int64_t n = 0;
  for (const CommRecord& r : records_) n += r.kind == kind ? r.bytes : 0;
  return n;
}

}  // namespace tessera
