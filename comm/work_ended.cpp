// What a wait does that has lasted for seconds: it looks whether those it waits for are still there.
#include "comm/work_state.h"

namespace tessera {
namespace {

constexpr double kSecondsBetweenLooks = 0.5;

}  // namespace

// Who is seen to have ended in two looks has sent nothing in between that could still be on its way.
void Work::State::look_after_peers(double waited, PeerWatch* watch) {
  if (waited < watch->next_look) return;
  watch->next_look = waited + kSecondsBetweenLooks;
  const int before = watch->ended;
  watch->ended = -1;
  int status = 0;
  for (std::int64_t i = 0; i < ticket_count_; ++i) {
    const Ticket& ticket = tickets_[static_cast<std::size_t>(i)];
    if (ticket.done) continue;
    const std::optional<int> end = group_->transport().end_of(group_->world_rank(ticket.peer));
    if (!end || watch->ended >= 0) continue;
    watch->ended = ticket.peer;
    status = *end;
  }
  if (watch->ended < 0 || watch->ended != before) return;
  const std::string text =
      fmt::format("rank {} of {} has ended its run and will not take part, called at {}:{}", watch->ended,
                  group_->size(), call_.site.file_name(), call_.site.line());
  // A rank that ended with a status of its own says why itself.
  give_up(status == 0 ? std::make_exception_ptr(Error(ErrorKind::Comm, call_.op, text, call_.site))
                      : std::make_exception_ptr(PeerFailed(ErrorKind::Comm, call_.op, text, call_.site)));
}

}  // namespace tessera
