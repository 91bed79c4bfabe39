// What a wait does that has lasted for seconds: it looks whether those it waits for are still there.
#include "comm/work_state.h"

namespace tessera {
namespace {

constexpr double kSecondsBetweenLooks = 0.5;
constexpr double kSecondsOnTheWay = 0.5;  // of a message that was sent before its sender ended

}  // namespace

// Who is known to have ended for long enough, and in two looks between which messages were taken, has sent
// nothing that could still come.
void Work::State::look_after_peers(double waited, PeerWatch* watch) {
  if (waited < watch->next_look) return;
  const int before = watch->ended;
  watch->ended = -1;
  RankEnd ended;
  for (std::int64_t i = 0; i < ticket_count_; ++i) {
    const Ticket& ticket = tickets_[static_cast<std::size_t>(i)];
    if (ticket.done) continue;
    const std::optional<RankEnd> end = group_->transport().end_of(group_->world_rank(ticket.peer));
    if (!end || watch->ended >= 0) continue;
    watch->ended = ticket.peer;
    ended = *end;
  }
  const bool long_ago = watch->ended >= 0 && ended.known_seconds >= kSecondsOnTheWay;
  watch->next_look = waited + (long_ago ? 0 : kSecondsBetweenLooks);
  if (!long_ago || watch->ended != before) return;
  const std::string text =
      fmt::format("rank {} of {} has ended its run and will not take part, called at {}:{}", watch->ended,
                  group_->size(), call_.site.file_name(), call_.site.line());
  // A rank that ended with a status of its own says why itself.
  give_up(ended.status == 0
              ? std::make_exception_ptr(Error(ErrorKind::Comm, call_.op, text, call_.site))
              : std::make_exception_ptr(PeerFailed(ErrorKind::Comm, call_.op, text, call_.site)));
}

}  // namespace tessera
