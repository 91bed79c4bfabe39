// Log lines and trace files.
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "runtime/environment.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/progress.h"
#include "runtime/trace.h"

using namespace tessera;

namespace {

// A folder of this test's own, gone when it ends.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string content(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string logged(const std::function<void()>& f) {
  const Folder folder;
  std::FILE* file = std::fopen(folder.file("log").c_str(), "w");
  set_log_file(file);
  f();
  set_log_file(nullptr);
  std::fclose(file);
  return content(folder.file("log"));
}

}  // namespace

TEST_CASE("levels and ranks") {
  set_log_all_ranks(false);
  set_log_level(LogLevel::Info);
  set_rank_label({0, 4});
  CHECK(logged([] {
          log_info("step {} of {}", 1, 2);
          log_debug("hidden {}", 1);
          log_warn("w");
          log_error("e");
        }) == "step 1 of 2\nwarning: w\nerror: e\n");
  set_rank_label({2, 4});
  CHECK(logged([] {
          log_info("hidden");
          log_error("seen");
        }) == "[rank 2/4] error: seen\n");
  set_log_all_ranks(true);
  CHECK(logged([] { log_info("all"); }) == "[rank 2/4] all\n");
  set_rank_label({0, 4});
  CHECK(logged([] { log_info("all"); }) == "[rank 0/4] all\n");
  set_rank_label({0, 1});
  CHECK(logged([] { log_info("alone"); }) == "alone\n");
  set_log_all_ranks(false);
  set_log_level(LogLevel::Error);
  CHECK(logged([] { log_warn("hidden"); }).empty());
  set_log_level(LogLevel::Debug);
  CHECK(logged([] { log_debug("{}", 3); }) == "debug: 3\n");
  set_log_level(LogLevel::Info);
}

TEST_CASE("lines of several threads stay whole") {
  const std::string text = logged([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        for (int i = 0; i < 200; ++i) log_info("{}", std::string(50, static_cast<char>('a' + t)));
      });
    for (auto& t : threads) t.join();
  });
  std::istringstream in(text);
  std::string line;
  int lines = 0;
  while (std::getline(in, line)) {
    ++lines;
    REQUIRE(line == std::string(50, line[0]));
  }
  CHECK(lines == 800);
}

TEST_CASE("threads without a label speak for the process, virtual ranks for themselves") {
  set_rank_label({1, 2});
  int plain = -1;
  int own = -1;
  std::thread([&] { plain = rank_label().rank; }).join();
  std::thread([&] {
    set_rank_label({7, 8});
    own = rank_label().rank;
  }).join();
  CHECK(plain == 1);
  CHECK(own == 7);
  CHECK(rank_label().rank == 1);
  set_rank_label({0, 1});
}

TEST_CASE("a trace is JSON that viewers open") {
  const Folder folder;
  { TraceScope before("before"); }
  trace_start(folder.file("trace.json"));
  CHECK(trace_running());
  {
    TraceScope outer("outer \"quoted\"", "op");
    TraceScope inner("send", "comm", 1024);
  }
  std::thread([] {
    set_rank_label({3, 4});
    TraceScope other("other");
    other.set_bytes(5);
  }).join();
  TraceScope open("still open");
  trace_stop();
  CHECK_FALSE(trace_running());
  { TraceScope after("after"); }
  const auto json = nlohmann::json::parse(content(folder.file("trace.json")));
  const auto& events = json.at("traceEvents");
  std::map<std::string, nlohmann::json> named;
  int meta = 0;
  for (const auto& e : events) {
    if (e.at("ph") == "M")
      ++meta;
    else
      named[e.at("name")] = e;
  }
  CHECK(meta == 2);
  REQUIRE(named.size() == 3);
  const auto& outer = named.at("outer \"quoted\"");
  const auto& inner = named.at("send");
  CHECK(inner.at("ph") == "X");
  CHECK(inner.at("cat") == "comm");
  CHECK(inner.at("args").at("bytes") == 1024);
  CHECK(inner.at("pid") == 0);
  CHECK(outer.at("ts").get<double>() <= inner.at("ts").get<double>());
  CHECK(outer.at("dur").get<double>() >= inner.at("dur").get<double>());
  CHECK(outer.at("tid") == inner.at("tid"));
  CHECK(named.at("other").at("pid") == 3);
  CHECK(named.at("other").at("tid") != inner.at("tid"));
  CHECK(named.at("other").at("args").at("bytes") == 5);
}

TEST_CASE("ranks above 0 write files of their own; a second trace starts empty; bad paths are refused") {
  const Folder folder;
  set_rank_label({2, 3});
  trace_start(folder.file("t.json"));
  { TraceScope scope("x"); }
  trace_stop();
  trace_start(folder.file("plain"));
  trace_stop();
  set_rank_label({0, 1});
  CHECK(content(folder.file("t.rank2.json")).find("\"x\"") != std::string::npos);
  const auto second = nlohmann::json::parse(content(folder.file("plain.rank2")));
  CHECK(second.at("traceEvents").size() == 1);
  CHECK_THROWS_AS(trace_start(folder.file("no/such/folder.json")), Error);
  trace_stop();
}

TEST_CASE("the progress hook is per thread") {
  static int calls = 0;
  poll_progress();
  CHECK(calls == 0);
  set_progress_function([] { ++calls; });
  poll_progress();
  std::thread([] { poll_progress(); }).join();
  CHECK(calls == 1);
  set_progress_function(nullptr);
  poll_progress();
  CHECK(calls == 1);
}

TEST_CASE("switches in the environment are 0 or 1") {
  constexpr const char* kName = "TESSERA_TEST_SWITCH";
  unsetenv(kName);
  CHECK(environment_switch(kName, true));
  CHECK_FALSE(environment_switch(kName, false));
  setenv(kName, "", 1);
  CHECK(environment_switch(kName, true));
  setenv(kName, "0", 1);
  CHECK_FALSE(environment_switch(kName, true));
  setenv(kName, "1", 1);
  CHECK(environment_switch(kName, false));
  setenv(kName, "yes", 1);
  CHECK_THROWS_WITH(environment_switch(kName, true),
                    Catch::Contains(kName) && Catch::Contains("\"yes\" was given, allowed are 0 and 1"));
  unsetenv(kName);
}
