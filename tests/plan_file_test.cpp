// The file of a device library's plans: what is wrong with it costs the plans that are wrong and nothing
// else.
#include "ops/plan_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "runtime/log.h"
#include "tests/support/world.h"

using namespace tessera;

namespace {

// A folder for one test, which goes with it. No warnings meanwhile: there would be one for each damaged byte.
class Folder {
 public:
  Folder() {
    set_log_level(LogLevel::Error);
    std::string name = (std::filesystem::temp_directory_path() / "plans-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    set_log_level(before_);
    std::filesystem::remove_all(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  LogLevel before_ = log_level();
  std::filesystem::path path_;
};

const std::string kMaker = "cudnn 9 sm 9.0 fnv1a";
const std::vector<std::pair<std::string, std::string>> kPlans{
    {"graph one", std::string("bytes\0of one", 12)}, {"graph two", "\xff\x01 two"}, {"graph three", "3"}};

void keep(const std::string& path, std::size_t first = 0, std::size_t end = kPlans.size()) {
  PlanFile file(path, kMaker);
  for (std::size_t i = first; i < end; ++i)
    if (file.wants(kPlans[i].first)) file.add(kPlans[i].first, kPlans[i].second);
}
std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}
void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// How many plans are there. Those that are there are right.
int right_plans(const std::string& path) {
  const PlanFile file(path, kMaker);
  int found = 0;
  for (const auto& [graph, bytes] : kPlans)
    if (const auto kept = file.find(graph)) {
      CHECK(*kept == bytes);
      ++found;
    }
  return found;
}

}  // namespace

TEST_CASE("plans are found again under their graph, by their maker alone") {
  const Folder folder;
  const std::string path = folder / "plans";
  keep(path);
  CHECK(right_plans(path) == 3);
  const std::string before = text_of(path);
  keep(path);
  CHECK(text_of(path) == before);
  CHECK_FALSE(PlanFile(path, "cudnn 8 sm 9.0 fnv1a").find("graph one"));
  CHECK_FALSE(PlanFile(path, kMaker).find("graph"));
}

TEST_CASE("whatever byte of a file is damaged, no plan is another one") {
  const Folder folder;
  const std::string path = folder / "plans";
  keep(path);
  const std::string good = text_of(path);
  std::mt19937_64 random(test_seed());
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 7));
    write(path, bad);
    INFO("byte " << at);
    const int found = right_plans(path);
    CHECK((found >= 1 && found <= 3));  // a line feed joins two lines, or parts one
    keep(path);
    CHECK(right_plans(path) == 3);  // what is lost is added again
  }
}

TEST_CASE("plans that stand under each other's graph are made anew") {
  const Folder folder;
  const std::string path = folder / "plans";
  keep(path, 0, 2);
  std::stringstream text(text_of(path));
  std::vector<std::vector<std::string>> parts;
  for (std::string line; std::getline(text, line);) {
    parts.emplace_back();
    std::stringstream fields(line);
    for (std::string field; std::getline(fields, field, '\t');) parts.back().push_back(field);
  }
  REQUIRE((parts.size() == 2 && parts[0].size() == 4));
  std::swap(parts[0][1], parts[1][1]);
  std::string swapped;
  for (const auto& p : parts) swapped += p[0] + '\t' + p[1] + '\t' + p[2] + '\t' + p[3] + '\n';
  write(path, swapped);
  CHECK(right_plans(path) == 0);
}

TEST_CASE("a file that ends anywhere keeps its whole lines, and takes new ones") {
  const Folder folder;
  const std::string path = folder / "plans";
  keep(path);
  const std::string good = text_of(path);
  for (std::size_t length = 0; length < good.size(); ++length) {
    write(path, good.substr(0, length));
    INFO(length << " bytes");
    CHECK(plan_file_fault(path).empty());
    keep(path);
    CHECK(right_plans(path) == 3);
  }
  write(path, "\n" + good + "\n\n");
  CHECK(right_plans(path) == 3);
}

TEST_CASE("a file that cannot be one of plans is named, and left as it is") {
  const Folder folder;
  const std::string path = folder / "text";
  write(path, "not a plan\n");
  CHECK(plan_file_fault(path) == path + " is no file of plans");
  keep(path);
  CHECK(text_of(path) == "not a plan\n");
  CHECK(plan_file_fault(folder / "") == (folder / "") + " is a folder, no file of plans");
  CHECK(plan_file_fault(folder / "no/such").find("No such file or directory") != std::string::npos);
  CHECK(plan_file_fault("/dev/null") == "/dev/null is a device or a pipe, no file of plans");
}
