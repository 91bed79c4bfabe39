// The file of a device's plans: whatever has become of it, a graph is given its own plan or none.
#include <catch2/catch.hpp>
#include <filesystem>

#include "ops/plan_cache.h"
#include "ops/plan_file.h"
#include "runtime/log.h"
#include "tests/netcdf_files.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::netcdf_files;

namespace {

const std::string kMaker = "cudnn 1 sm 2.3 multiprocessors 4 fnv1a";

std::string graph(int i) { return R"({"kind":"forward","size":[)" + std::to_string(i) + "]}"; }
// Of all values of a byte, so that all digits are in the file.
std::string plan(int i) {
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b ^ i);
  return bytes;
}

void write_plans(const std::string& path, int n) {
  std::filesystem::remove(path);
  PlanFile file(path, kMaker);
  for (int i = 0; i < n; ++i) {
    CHECK(file.wants(graph(i)));
    CHECK_FALSE(file.wants(graph(i)));
    file.add(graph(i), plan(i));
  }
}

// How many of n plans the file holds; none is another's.
int held(const PlanFile& file, int n) {
  int found = 0;
  for (int i = 0; i < n; ++i)
    if (const auto bytes = file.find(graph(i))) {
      CHECK(*bytes == plan(i));
      ++found;
    }
  return found;
}

std::string logged(const std::function<void()>& f) {
  const TemporaryFile log("plans.log");
  std::FILE* file = std::fopen(log.path().c_str(), "w");
  set_log_all_ranks(true);
  set_log_file(file);
  f();
  set_log_file(nullptr);
  std::fclose(file);
  return bytes_of(log.path());
}
int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// The plans that are found where the file holds `bytes`, and how many warnings are given: one, if any.
struct Reading {
  int found = 0;
  int warnings = 0;
};
Reading read(const std::string& path, const std::string& bytes, int n) {
  write_bytes(path, bytes);
  Reading r;
  const std::string log = logged([&] { r.found = held(PlanFile(path, kMaker), n); });
  r.warnings = count(log, "plan cache: ");
  if (count(log, " damaged, removed") == 0) return r;
  // From then on the file is as if what was damaged had never been there.
  const std::string again = logged([&] { CHECK(held(PlanFile(path, kMaker), n) == r.found); });
  CHECK(again.empty());
  CHECK(bytes_of(path).size() == bytes.size());
  return r;
}

}  // namespace

TEST_CASE("plans are those that were kept") {
  const TemporaryFile file("plans");
  write_plans(file.path(), 3);
  const Reading r = read(file.path(), bytes_of(file.path()), 3);
  CHECK(r.found == 3);
  CHECK(r.warnings == 0);
  CHECK(held(PlanFile(file.path(), "cudnn 2 sm 2.3 multiprocessors 4 fnv1a"), 3) == 0);
  CHECK_FALSE(PlanFile(file.path(), kMaker).wants(graph(2)));
  CHECK_FALSE(PlanFile("", "").wants(graph(2)));
}

TEST_CASE("a bit that has changed costs the plan of its line") {
  const TemporaryFile file("plans");
  write_plans(file.path(), 3);
  const std::string good = bytes_of(file.path());
  const std::size_t line = good.find('\n') + 1;
  auto random = test_random();
  for (int trial = 0; trial < 500; ++trial) {
    std::string bad = good;
    const auto at = static_cast<std::size_t>(random_int(random, 0, static_cast<std::int64_t>(line) - 2));
    bad[at] = static_cast<char>(bad[at] ^ 1 << random_int(random, 0, 7));
    const Reading r = read(file.path(), bad, 3);
    CAPTURE(at, bad.substr(0, line));
    REQUIRE(r.found == 2);
    // In the maker's name it is a line of another maker, but for a line that ends there.
    REQUIRE((r.warnings == 1 || at <= kMaker.size()));
  }
}

TEST_CASE("plans of each other's graphs, lines of former files, empty lines and lines of nothing") {
  const TemporaryFile file("plans");
  write_plans(file.path(), 2);
  const std::string good = bytes_of(file.path());
  const std::size_t second = good.find('\n') + 1;
  const auto plan_at = [&](std::size_t from) { return good.find('\t', good.find('\t', from) + 1) + 1; };
  const std::string first_plan = good.substr(plan_at(0), second - 1 - plan_at(0));
  const std::string second_plan = good.substr(plan_at(second), good.size() - 1 - plan_at(second));
  std::string swapped = good;
  swapped.replace(plan_at(second), second_plan.size(), first_plan);
  swapped.replace(plan_at(0), first_plan.size(), second_plan);
  CHECK(read(file.path(), swapped, 2).found == 0);
  CHECK(read(file.path(), swapped, 2).warnings == 1);

  const std::string former = "cudnn 1 sm 2.3 multiprocessors 4\t" + graph(0) + "\t00ff\n";
  CHECK(read(file.path(), former, 2).found == 0);
  CHECK(read(file.path(), former, 2).warnings == 0);
  CHECK(read(file.path(), "\n" + good + "\n\n", 2).found == 2);
  CHECK(read(file.path(), "\n" + good + "\n\n", 2).warnings == 0);
  for (const char* torn : {"cud", "cudnn 1 sm", "torn"}) {
    const Reading r = read(file.path(), torn + ("\n" + good), 2);
    CHECK(r.found == 2);
    CHECK(r.warnings == 1);
  }
}

TEST_CASE("after a line that was not written to its end the next plan is kept") {
  const TemporaryFile file("plans");
  write_plans(file.path(), 2);
  const std::string good = bytes_of(file.path());
  const std::size_t second = good.find('\n') + 1;
  // The whole of the second line is there where only its end is missing.
  auto random = test_random();
  std::vector<std::size_t> sizes = {1,          second - 2,      second - 1,     second,
                                    second + 1, good.size() - 2, good.size() - 1};
  while (sizes.size() < 60)
    sizes.push_back(
        static_cast<std::size_t>(random_int(random, 1, static_cast<std::int64_t>(good.size()) - 1)));
  const auto check_cut = [&](std::size_t size) {
    write_bytes(file.path(), good.substr(0, size));
    PlanFile torn(file.path(), kMaker);
    const int there = size == good.size() - 1 ? 2 : size >= second - 1 ? 1 : 0;
    REQUIRE(held(torn, 2) == there);
    for (int i = there; i < 3; ++i) {
      REQUIRE(torn.wants(graph(i)));
      torn.add(graph(i), plan(i));
    }
    REQUIRE(held(PlanFile(file.path(), kMaker), 3) == 3);
  };
  logged([&] {
    for (const std::size_t size : sizes) check_cut(size);
  });
}

TEST_CASE("what cannot be written later is warned of once") {
  const TemporaryFile folder("plans.d");
  std::filesystem::create_directory(folder.path());
  PlanFile file(folder.path() + "/plans", kMaker);
  std::filesystem::remove_all(folder.path());
  const std::string log = logged([&] {
    for (int i = 0; i < 3; ++i)
      if (file.wants(graph(i))) file.add(graph(i), plan(i));
  });
  CHECK(count(log, "plan cache: cannot write to ") == 1);
  CHECK(log.find("No such file or directory") != std::string::npos);
  CHECK_FALSE(file.wants(graph(7)));
  const std::string late =
      logged([&] { CHECK_FALSE(PlanFile(folder.path() + "/p", kMaker).wants(graph(0))); });
  CHECK(count(late, "; plans are not kept") == 1);
}

TEST_CASE("a file that one rank cannot use is refused by all with the same line") {
  const Communicator world = test_world();
  const TemporaryFile good("plans");
  const TemporaryFile other("other");
  write_bytes(other.path(), "not a plan\n");
  const int bad = world.size() - 1;
  const std::string folder = std::filesystem::temp_directory_path().string();
  for (const auto& [path, said] :
       {std::pair<std::string, const char*>{"no/such/plans", "cannot read and write"},
        {other.path(), "is no file of plans"},
        {folder, "is a folder"},
        {"/dev/full", "is a device"}}) {
    set_plan_cache(world.rank() == bad ? path : good.path());
    const std::string message = error_of([&] { check_plan_cache(world); });
    CHECK(message.find(said) != std::string::npos);
    if (world.size() > 1) CHECK(message.find("on rank " + std::to_string(bad)) != std::string::npos);
    for (const std::string& theirs : world.all_gather_bytes(message)) CHECK(theirs == message);
  }
  CHECK(bytes_of(other.path()) == "not a plan\n");
  // One rank may have none, and none need be there before.
  std::filesystem::remove(good.path());
  set_plan_cache(world.rank() == bad ? "" : good.path());
  CHECK_NOTHROW(check_plan_cache(world));
  CHECK(std::filesystem::exists(good.path()) == (world.rank() != bad));
  set_plan_cache("");
}
