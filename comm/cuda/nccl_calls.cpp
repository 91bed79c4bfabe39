#include "comm/cuda/nccl_calls.h"

#include <sched.h>

#include <chrono>
#include <cstring>

#include "comm/gather_blocks.h"
#include "comm/work_state.h"
#include "runtime/seconds.h"

namespace tessera::cuda {
namespace {

std::string text_of(ncclResult_t code, const char* what) {
  return fmt::format("{} failed: {}", what, ncclGetErrorString(code));
}

bool is_fine(ncclResult_t code) { return code == ncclSuccess || code == ncclInProgress; }

// Polls until what was begun is over. Other ranks may need messages of this host meanwhile.
std::string settle(ncclComm_t comm, const char* what, double deadline) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (;;) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t code = ncclCommGetAsyncError(comm, &state);
    if (code != ncclSuccess) return text_of(code, "ncclCommGetAsyncError");
    if (state == ncclSuccess) return {};
    if (state != ncclInProgress) return text_of(state, what);
    if (seconds_since(start) > deadline) return fmt::format("{} was not over after {:g} s", what, deadline);
    Work::State::advance_all();
    sched_yield();
  }
}

template <class T>
std::vector<T> gather(Group& group, const Call& call, const T& mine) {
  const std::string all = gather_blocks(group.shared_from_this(), call,
                                        std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
  std::vector<T> values(static_cast<std::size_t>(group.size()));
  std::memcpy(static_cast<void*>(values.data()), all.data(), all.size());
  return values;
}

struct Answer {
  char failure[240] = {};  // "": none
  ncclUniqueId id = {};
};

// All refuse what one of them met.
void refuse_failures(const std::vector<Answer>& answers, const Call& call) {
  for (std::size_t r = 0; r < answers.size(); ++r) {
    if (answers[r].failure[0] != '\0')
      fail(ErrorKind::Comm, call.op,
           fmt::format("NCCL did not start in a group of {} ranks: {} on rank {}", answers.size(),
                       answers[r].failure, r),
           call.site);
  }
}

void set_failure(Answer& answer, const std::string& text) {
  std::strncpy(answer.failure, text.c_str(), sizeof answer.failure - 1);
}

ncclUniqueId agree_on_id(Group& group, const Call& call) {
  Answer answer;
  if (group.rank() == 0) {
    const ncclResult_t code = ncclGetUniqueId(&answer.id);
    if (code != ncclSuccess) set_failure(answer, text_of(code, "ncclGetUniqueId"));
  }
  const std::vector<Answer> answers = gather(group, call, answer);
  refuse_failures(answers, call);
  return answers[0].id;
}

}  // namespace

std::string failure_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t code = ncclCommGetAsyncError(comm, &state);
  if (code != ncclSuccess) return text_of(code, "ncclCommGetAsyncError");
  return is_fine(state) ? std::string() : text_of(state, "NCCL");
}

ncclComm_t make_nccl(Group& group, const Call& call) {
  const ncclUniqueId id = agree_on_id(group, call);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t code = ncclCommInitRankConfig(&comm, group.size(), id, group.rank(), &config);
  Answer answer;
  if (!is_fine(code)) {
    set_failure(answer, text_of(code, "ncclCommInitRankConfig"));
  } else {
    set_failure(answer, settle(comm, "ncclCommInitRankConfig", group.endpoint().deadline));
  }
  try {
    refuse_failures(gather(group, call, answer), call);
  } catch (...) {
    if (comm != nullptr) abort_nccl(comm);
    throw;
  }
  return comm;
}

std::string post_messages(ncclComm_t comm, const Phase& phase, StreamHandle stream, double deadline) {
  ncclResult_t code = ncclGroupStart();
  if (code != ncclSuccess) return text_of(code, "ncclGroupStart");
  const char* what = "ncclRecv";
  for (const Transfer& t : phase.recvs) {
    if (is_fine(code))
      code = ncclRecv(t.data, static_cast<std::size_t>(t.bytes), ncclInt8, t.peer, comm, stream);
  }
  if (is_fine(code)) what = "ncclSend";
  for (const Transfer& t : phase.sends) {
    if (is_fine(code))
      code = ncclSend(t.data, static_cast<std::size_t>(t.bytes), ncclInt8, t.peer, comm, stream);
  }
  const ncclResult_t end = ncclGroupEnd();
  if (!is_fine(code)) return text_of(code, what);
  if (!is_fine(end)) return text_of(end, "ncclGroupEnd");
  return end == ncclInProgress ? settle(comm, "ncclGroupEnd", deadline) : std::string();
}

void end_nccl(ncclComm_t comm, double deadline) noexcept {
  if (is_fine(ncclCommFinalize(comm)) && settle(comm, "ncclCommFinalize", deadline).empty()) {
    ncclCommDestroy(comm);
  } else {
    abort_nccl(comm);
  }
}

void abort_nccl(ncclComm_t comm) noexcept { ncclCommAbort(comm); }

}  // namespace tessera::cuda
