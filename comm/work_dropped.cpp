// What becomes of a work for which nobody waits any more.
#include <algorithm>
#include <cstdio>

#include "comm/work_state.h"
#include "runtime/graph_capture.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// Works that are dropped because their rank throws give their peers this long, all together: all ranks may be
// throwing the same error and complete at once, but a rank that fails alone must not sit out the whole
// deadline.
constexpr double kUnwindingSeconds = 1.0;

}  // namespace

Work::~Work() {
  if (state_ && !state_->finished() && state_->is_kept_from_capture())
    GraphCapture::current()->hold_until_ended(std::move(state_));
}

Work::State::~State() {
  if (finished_) {
    keep_unseen_error();
    return;
  }
  const bool unwinding = std::uncaught_exceptions() > 0;
  const bool excused = is_excused();
  try {
    if (!unwinding || linked_) {
      wait();
    } else if (group_->transport().poison().empty() && wait_until(seconds_to_unwind())) {
      return;
    }
  } catch (const std::exception& e) {
    std::exception_ptr& lost = group_->endpoint().lost_error;
    if (unwinding) {
      std::fprintf(stderr, "%s\n", e.what());
    } else if (!lost && !excused) {
      lost = std::current_exception();
    }
  }
  if (!finished_) give_up(nullptr);
}

// Nobody waits for this work any more, but what it failed of may explain what comes next.
void Work::State::keep_unseen_error() const {
  if (error_seen_ || !error_ || is_excused() || std::uncaught_exceptions() > 0) return;
  std::exception_ptr& lost = group_->endpoint().lost_error;
  if (!lost) lost = error_;
}

double Work::State::seconds_to_unwind() const {
  Clock::time_point& until = group_->endpoint().unwinding_until;
  const Clock::time_point now = Clock::now();
  if (until == Clock::time_point{})
    until =
        now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kUnwindingSeconds));
  return std::max(0.0, std::chrono::duration<double>(until - now).count());
}

}  // namespace tessera
