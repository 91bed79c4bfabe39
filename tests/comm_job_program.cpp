// A program of its own for what a test inside a running MPI cannot see: how MPI starts and how a job ends.
#include <unistd.h>

#include <cstdio>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/mpi.h"
#include "runtime/error.h"
#include "train/program.h"

using namespace tessera;

namespace {

void run(const std::string& mode, const Communicator& world) {
  if (mode == "alone") {
    if (world.rank() == world.size() - 1) abort_job(world, "the last rank cannot read a.nc");
    world.barrier();
  } else if (mode == "together") {
    abort_job(world, "no rank can read a.nc");
  } else if (mode == "caught") {
    if (world.rank() == 1) return;  // its own error is the caller's affair
    world.barrier();
  } else if (mode == "deadline") {
    world.set_deadline(0.5);
    if (world.rank() == 0) world.barrier();
    sleep(30);
  } else if (mode == "throw") {
    // With a work under way that its peer never joins.
    const Communicator pair = world.subgroup({{0, 1}});
    const Array array = Array::zeros({1000}, DType::F32);
    const Work work = world.rank() == 1 ? pair.all_reduce(array, ReduceOp::Sum) : Work();
    if (world.rank() == 1) TS_FAIL(Io, "reader", "rank 1 alone cannot go on");
    world.barrier();
  } else {
    const MpiSession again;  // joins what is running
    const Array one = Array::full({1}, 1.0, DType::F32);
    again.world().all_reduce(one, ReduceOp::Sum).wait();
    if (world.rank() == 0) std::printf("sum %g\n", one.at(0));
  }
}

// Many for which the last rank never comes, and nobody waits.
void begin_works(const Communicator& world, std::vector<Work>* works) {
  const Array array = Array::zeros({10}, DType::F32);
  for (int i = 0; i < 40; ++i) works->push_back(world.all_reduce(array, ReduceOp::Sum));
}

// Rank 1 fails while rank 0 has yet to read a message that lies in rank 1's memory.
void send_and_throw(const Communicator& world) {
  const Array data = Array::zeros({400'000}, DType::Bool);
  if (world.rank() == 1) {
    const SendBuffer send{0, data.raw(), data.nbytes()};
    const Work work = world.exchange({&send, 1}, {});
    throw std::runtime_error("rank 1's disk is on fire");
  }
  if (world.rank() > 0) return;
  sleep(2);
  const RecvBuffer recv{1, data.raw(), data.nbytes()};
  world.exchange({}, {&recv, 1}).wait();
}

// Bodies of a program of which the last rank, or every one, ends unlike others.
int body(Runtime& runtime, int, char** argv) {
  constexpr int kStatus = 3;
  const std::string mode = argv[1];
  const bool last = runtime.rank() == runtime.size() - 1;
  std::vector<Work> works;
  if (mode == "foreign, many works" && !last) begin_works(runtime.world(), &works);
  if (mode == "foreign, many works" && runtime.rank() == 1) throw std::runtime_error("rank 1 alone");
  if (mode == "foreign, many works") sleep(20);
  if (mode == "status 0, works dropped" && !last) begin_works(runtime.world(), &works);
  if (mode == "status 0, recovered") {
    runtime.world().set_deadline(0.5);
    if (runtime.rank() == 0) {
      begin_works(runtime.world().subgroup({{0, 1}}), &works);
      try {
        works.front().wait();
      } catch (const Error&) {
        works.clear();  // they failed of the same
      }
    } else {
      runtime.world().subgroup({{0, 1}});
      sleep(2);
    }
    return 0;
  }
  if (mode == "foreign, after a lost one" && runtime.rank() == 0) {
    begin_works(runtime.world(), &works);
    works.clear();
    throw std::runtime_error("my disk is on fire");
  }
  if (mode == "foreign, after a lost one") return 0;
  if (mode == "status 0, busy, twice" && last) sleep(4);
  if (mode == "status 0, busy, twice") runtime.world().barrier();
  if (mode == "foreign" && last) throw 42;
  if (mode == "foreign, deadline") {
    // The others fail of it later, each with a line of its own.
    runtime.world().set_deadline(2);
    if (last) throw std::runtime_error("the last rank came first");
    runtime.world().barrier();
  }
  if (mode == "foreign, two lines") throw std::runtime_error("one\ntwo\033[2J");
  if (mode == "foreign, no memory") throw std::bad_alloc();
  if (mode == "foreign without words") throw std::runtime_error("");
  if (mode == "status 0, early" && !last) runtime.world().barrier();
  if (mode == "status 0, late") {
    if (runtime.rank() == 1) sleep(3);
    runtime.world().barrier();
    if (runtime.rank() == 0) sleep(3);
  }
  if (mode.starts_with("status 0")) return 0;
  if (mode == "foreign, unread") send_and_throw(runtime.world());
  if (mode == "foreign together") throw std::string("no exception");
  if (mode == "status together" || last) return kStatus;
  if (mode != "status, nobody waits") runtime.world().barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string mode = argc > 1 ? argv[1] : "";
      mode.starts_with("foreign") || mode.starts_with("status")) {
    const std::optional<MpiSession> outer =
        mode.ends_with("twice") ? std::make_optional<MpiSession>(&argc, &argv) : std::nullopt;
    if ((outer || mode.ends_with("again")) && run_program(argc, argv, &body) != 0) return 2;
    return run_program(argc, argv, &body);
  }
  try {
    const MpiSession session(&argc, &argv);
    try {
      run(argc > 1 ? argv[1] : "", session.world());
    } catch (const Error& e) {
      if (std::string(argv[1]) == "throw") throw;  // past the session
      abort_job(session.world(), e.what());
    }
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
