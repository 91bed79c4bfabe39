#include "emulated/nccl_comm.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "emulated/nccl.h"
#include "emulated/settings.h"
#include "emulated/stream_state.h"

namespace tessera::emulated {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double nccl_patience() { return settings().patience; }

void end_job(const char* format, ...) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  va_list list;
  va_start(list, format);
  std::fprintf(stderr, "emulated NCCL, rank %d of the job: ", rank);
  std::vfprintf(stderr, format, list);
  std::fprintf(stderr, "\n");
  va_end(list);
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

namespace {

using IdKey = std::pair<std::int32_t, std::int32_t>;
IdKey key_of(const NcclId& id) { return {id.root, id.count}; }
std::set<IdKey>& aborted_ids() {
  static std::set<IdKey> ids;
  return ids;
}

std::set<const ncclComm*>& in_use() {
  static std::set<const ncclComm*> all;
  return all;
}

}  // namespace

bool operator==(const NcclPlace& a, const NcclPlace& b) {
  return key_of(a.comm) == key_of(b.comm) && a.number == b.number;
}

NcclPlace nccl_place_before(int world_rank, bool sent, const NcclPlace& now) {
  static std::map<std::pair<int, bool>, NcclPlace> last;
  return std::exchange(last[{world_rank, sent}], now);
}

bool complete(std::vector<MPI_Request>& requests) {
  int done = 0;
  MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

}  // namespace tessera::emulated

namespace emu = tessera::emulated;

namespace {

// On MPI_COMM_WORLD, while a communicator is made; two tags each.
constexpr int kFirstInitTag = 1 << 24;
constexpr int kInitTags = 1 << 20;

}  // namespace

bool ncclComm::is_in_use(const ncclComm* comm) { return emu::in_use().count(comm) > 0; }
void ncclComm::drop() {
  emu::in_use().erase(this);
  self.reset();
}

int ncclComm::init_tag() const { return kFirstInitTag + 2 * (id.count % kInitTags); }

void ncclComm::begin() {
  MPI_Comm_rank(MPI_COMM_WORLD, &me.world_rank);
  emu::in_use().insert(this);
  me.rank = rank;
  me.ranks = ranks;
  if (emu::settings().devices > 0) me.device = device;
  table.resize(static_cast<std::size_t>(ranks));
  sent.resize(static_cast<std::size_t>(ranks));
  received.resize(static_cast<std::size_t>(ranks));
  if (emu::never_begins()) return;
  if (me.world_rank == id.root) {
    members.resize(static_cast<std::size_t>(ranks));
    for (emu::NcclMember& m : members)
      MPI_Irecv(&m, sizeof m, MPI_BYTE, MPI_ANY_SOURCE, init_tag(), MPI_COMM_WORLD, &requests.emplace_back());
  }
  MPI_Irecv(table.data(), ranks, MPI_INT32_T, id.root, init_tag() + 1, MPI_COMM_WORLD, &answer);
  MPI_Isend(&me, sizeof me, MPI_BYTE, id.root, init_tag(), MPI_COMM_WORLD, &requests.emplace_back());
}

void ncclComm::tell_members() {
  std::vector<bool> seen(static_cast<std::size_t>(ranks));
  std::map<std::int32_t, std::int32_t> driver;
  std::vector<std::int32_t> answers(static_cast<std::size_t>(ranks));
  for (const emu::NcclMember& m : members) {
    if (m.ranks != ranks || m.rank < 0 || m.rank >= ranks || seen[static_cast<std::size_t>(m.rank)])
      emu::end_job("ncclCommInitRankConfig: rank %d of the job comes as rank %d of %d, the root has %d ranks",
                   m.world_rank, m.rank, m.ranks, ranks);
    seen[static_cast<std::size_t>(m.rank)] = true;
    const auto [other, alone] = driver.emplace(m.device, m.rank);
    if (m.device >= 0 && !alone)
      emu::end_job("ncclCommInitRankConfig: ranks %d and %d of %d come with one device, %d", other->second,
                   m.rank, ranks, m.device);
    answers[static_cast<std::size_t>(m.rank)] = m.world_rank;
  }
  for (const emu::NcclMember& m : members)  // all have posted the receive
    MPI_Send(answers.data(), ranks, MPI_INT32_T, m.world_rank, init_tag() + 1, MPI_COMM_WORLD);
}

bool ncclComm::was_aborted(const emu::NcclId& id) { return emu::aborted_ids().count(emu::key_of(id)) > 0; }
void ncclComm::note_abort() {
  aborted = true;
  later.clear();  // which names this communicator
  emu::aborted_ids().insert(emu::key_of(id));
}

ncclResult_t ncclComm::do_later(std::function<void()> work) {
  if (blocking || emu::is_instant()) {
    work();
    return ncclSuccess;
  }
  constexpr unsigned kMostPolls = 5;
  later.push_back(std::move(work));
  polls = 1 + static_cast<int>(emu::draw_number() % kMostPolls);
  return state = ncclInProgress;
}

void ncclComm::do_it() {
  if (emu::never_posts() || --polls > 0) return;
  // An error that came meanwhile stays.
  if (state == ncclInProgress) state = ncclSuccess;
  const auto works = std::exchange(later, {});
  for (const auto& work : works) work();
}

void ncclComm::go_on() {
  if (!later.empty()) return do_it();
  if (state != ncclInProgress || is_begun() || emu::never_begins()) return;
  if (emu::seconds_since(begun) > emu::nccl_patience())
    emu::end_job("ncclCommInitRankConfig: not all of %d ranks came within %g s", ranks, emu::nccl_patience());
  if (!told) {
    if (!emu::complete(requests)) return;
    if (me.world_rank == id.root) tell_members();
    told = true;
  }
  int done = 0;
  MPI_Test(&answer, &done, MPI_STATUS_IGNORE);
  if (done == 0) return;
  // All members are here or come soon. Never freed: that would be collective, and they end at different
  // times.
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, ranks, table.data(), &group);
  MPI_Comm_create_group(MPI_COMM_WORLD, group, init_tag(), &mpi);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  state = ncclSuccess;
  ++emu::nccl_counters().communicators;
}
