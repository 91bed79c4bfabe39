#include "train/config.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <limits>
#include <sstream>

#include "runtime/error.h"
#include "tests/support/world.h"
#include "train/metrics.h"

using namespace tessera;
using namespace tessera::train;

namespace {

struct Settings {
  int steps = 400;
  std::int64_t seed = 1;
  double lr = 1e-3;
  bool check = false;
  bool fast = true;
  std::string out = "run";
  std::string device = "cpu";
  std::string data;
  std::vector<int> patch = {4, 4};
  int depth = 4;
  double dropout = 0.2;
  MeshAxes mesh;

  Config config() {
    Config c("tessera-test", "Trains nothing.");
    c.add("steps", &steps, "optimizer steps").at_least(1);
    c.add("seed", &seed, "of all random numbers");
    c.add("device", &device, "where tensors live").choices({"cpu", "cuda"});
    c.add("out", &out, "folder for results");
    c.add("mesh", &mesh, "mesh axes");
    c.add("fast", &fast, "be fast");
    c.section("Model");
    c.add("model.patch", &patch, "cells of a patch").at_least(1);
    c.add("model.depth", &depth, "blocks").at_least(1);
    c.add("model.dropout", &dropout, "share of values dropped").at_least(0).below(1);
    c.section("Optimizer");
    c.add("optimizer.learning_rate", &lr, "peak rate").flag("lr").positive().unit("per step");
    c.add("optimizer.check", &check, "check gradients");
    return c;
  }
};

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.message().find('\n') == std::string::npos);
    return e.message();
  }
  return "no error";
}
std::string error_of(const std::vector<std::string>& arguments) {
  Settings s;
  return error_of([&] { s.config().parse(arguments); });
}
std::string file_error(const std::string& text) {
  Settings s;
  return error_of([&] { s.config().read_text(text, "winds.toml"); });
}

}  // namespace

TEST_CASE("the command line overrides the file, which overrides the defaults") {
  const std::string path = "config_test_" + std::to_string(rank_label().rank) + ".toml";
  std::ofstream(path) << "steps = 50\nseed = 9007199254740993\nmesh = \"ddp=2,domain=2\"\n"
                         "[model]\ndepth = 6\npatch = [2, 8]\n[optimizer]\nlearning_rate = 1\n";
  Settings s;
  Config c = s.config();
  CHECK_FALSE(c.parse({"--steps", "10", "--config", path, "--depth=3", "--optimizer.check", "--no-fast"}));
  CHECK(s.steps == 10);
  CHECK(s.depth == 3);
  CHECK(s.patch == std::vector<int>{2, 8});
  CHECK(s.seed == 9007199254740993);
  CHECK(s.lr == 1.0);
  CHECK(s.check);
  CHECK_FALSE(s.fast);
  CHECK(s.out == "run");
  CHECK(s.mesh == MeshAxes{{"ddp", 2}, {"domain", 2}});
  CHECK(c.file() == path);
  const std::string dump = c.dump();
  CHECK(dump.find("# command line") != std::string::npos);
  CHECK(dump.find("# " + path + ":8") != std::string::npos);
  CHECK(dump.find("# default") != std::string::npos);

  // The dump is a file that sets the same values again.
  Settings again;
  again.config().read_text(dump, "dump");
  CHECK(again.steps == 10);
  CHECK(again.seed == s.seed);
  CHECK(again.patch == s.patch);
  CHECK(again.mesh == s.mesh);
  CHECK(again.config().json() == c.json());
  CHECK(c.json().find("\"model.patch\":[2, 8],") != std::string::npos);
}

TEST_CASE("an option has several names on the command line") {
  for (const char* name :
       {"--optimizer.learning_rate", "--optimizer.learning-rate", "--lr", "--learning-rate"}) {
    Settings s;
    s.config().parse({name, "2.5e-4"});
    CHECK(s.lr == 2.5e-4);
  }
  Settings s;
  s.config().parse({"--patch", "8,2", "--seed=-3", "--optimizer.check=true", "--fast=false"});
  CHECK(s.patch == std::vector<int>{8, 2});
  CHECK(s.seed == -3);
  CHECK(s.check);
  CHECK_FALSE(s.fast);
}

TEST_CASE("a wrong command line is refused in one line") {
  CHECK(error_of({"--step", "3"}) == "config: unknown option --step; did you mean steps?");
  CHECK(error_of({"--model.dept", "3"}) == "config: unknown option --model.dept; did you mean model.depth?");
  CHECK(error_of({"--nonsense"}) ==
        "config: unknown option --nonsense; allowed are steps, seed, device, out, mesh, fast, model.patch, "
        "model.depth, model.dropout, optimizer.learning_rate, optimizer.check");
  CHECK(error_of({"--no-steps"}) == "config: unknown option --no-steps; did you mean steps?");
  CHECK(error_of({"--steps", "many"}) == "config: --steps is 'many'; allowed is an integer of at least 1");
  CHECK(error_of({"--steps", "1.5"}) == "config: --steps is '1.5'; allowed is an integer of at least 1");
  CHECK(error_of({"--steps", "0"}) == "config: --steps is '0'; allowed is an integer of at least 1");
  CHECK(error_of({"--dropout", "1"}) ==
        "config: --dropout is '1'; allowed is a number of at least 0 and below 1");
  CHECK(error_of({"--lr", "nan"}).find("allowed is a number above 0") != std::string::npos);
  CHECK(error_of({"--patch", "4,x"}) ==
        "config: --patch is '4,x'; allowed is a list of integers of at least 1");
  CHECK(error_of({"--patch", "4 4"}) ==
        "config: --patch is '4 4'; allowed is a list of integers of at least 1");
  CHECK(error_of({"--patch", "[4,,4]"}).find("--patch is '[4,,4]'") != std::string::npos);
  CHECK(error_of({"--device", "gpu"}) == "config: --device is 'gpu'; allowed is one of cpu, cuda");
  CHECK(error_of({"--fast=maybe"}) == "config: --fast is 'maybe'; allowed is true or false");
  CHECK(error_of({"--steps"}) == "config: --steps needs a value: an integer of at least 1");
  CHECK(error_of({"10"}) ==
        "config: argument '10' is no option; options are written --name value (--help lists them)");
  CHECK(error_of({"--config"}) == "config: --config needs a file");
  CHECK(error_of({"--config", "no/such.toml"}) == "config: file 'no/such.toml' cannot be read");
}

TEST_CASE("an integer beyond what its type can hold is refused with the limit") {
  CHECK(error_of({"--steps", "3000000000"}) ==
        "config: --steps is '3000000000'; allowed is an integer of at least 1 and at most 2147483647");
  CHECK(error_of({"--steps", "+99999999999999999999999"}) ==
        "config: --steps is '+99999999999999999999999'; allowed is an integer of at least 1 and at most "
        "2147483647");
  CHECK(error_of({"--steps", "-3000000000"}) ==
        "config: --steps is '-3000000000'; allowed is an integer of at least 1");
  CHECK(error_of({"--steps", "3000000000x"}) ==
        "config: --steps is '3000000000x'; allowed is an integer of at least 1");
  CHECK(error_of({"--seed", "9223372036854775808"}) ==
        "config: --seed is '9223372036854775808'; allowed is an integer of at most 9223372036854775807");
  CHECK(error_of({"--seed", "-9223372036854775809"}) ==
        "config: --seed is '-9223372036854775809'; allowed is an integer of at least -9223372036854775808");
  CHECK(error_of({"--patch", "4,3000000000"}) ==
        "config: --patch is '4,3000000000'; allowed is a list of integers of at least 1 and at most "
        "2147483647");
  CHECK(file_error("[model]\ndepth = 3000000000\n") ==
        "config: winds.toml:2: key 'model.depth' is 3000000000; allowed is an integer of at least 1 and at "
        "most 2147483647");
  CHECK(file_error("[model]\npatch = [2, 3000000000]\n") ==
        "config: winds.toml:2: key 'model.patch' is 2,3000000000; allowed is a list of integers of at least "
        "1 and at most 2147483647");
  CHECK(error_of({"--mesh", "ddp=3000000000"}) ==
        "mesh: 'ddp=3000000000' gives axis 'ddp' no size of at most 2147483647; a mesh is written "
        "NAME=N,NAME=N,... such as ddp=2,domain=2");
  Settings s;
  s.config().parse({"--patch", "[4, 5]"});  // as --help and files have it
  CHECK(s.patch == std::vector<int>{4, 5});
  s.config().parse({"--steps", "2147483647", "--seed", "-9223372036854775808"});
  CHECK(s.steps == 2147483647);
  CHECK(s.seed == std::numeric_limits<std::int64_t>::min());
}

TEST_CASE("a wrong file is refused with file and line") {
  CHECK(file_error("steps = 3\n\nstops = 4\n") ==
        "config: winds.toml:3: unknown key 'stops'; did you mean steps?");
  CHECK(file_error("[model]\ndepht = 4\n") ==
        "config: winds.toml:2: unknown key 'model.depht'; did you mean model.depth?");
  CHECK(file_error("\nsteps = 2.5\n") ==
        "config: winds.toml:2: key 'steps' is 2.5; allowed is an integer of at least 1");
  CHECK(file_error("steps = \"2\"\n") ==
        "config: winds.toml:1: key 'steps' is \"2\"; allowed is an integer of at least 1");
  CHECK(file_error("out = 2\n") == "config: winds.toml:1: key 'out' is 2; allowed is text");
  CHECK(file_error("fast = 1\n") == "config: winds.toml:1: key 'fast' is 1; allowed is true or false");
  CHECK(file_error("out = [1.5]\n") == "config: winds.toml:1: key 'out' is [ 1.5 ]; allowed is text");
  CHECK(file_error("mesh = \"domain\"\n").find("domain") != std::string::npos);
  CHECK(file_error("steps = = 2\n").rfind("config: winds.toml:1: ", 0) == 0);
  CHECK(file_error("steps = 1\nsteps = 2\n").rfind("config: winds.toml:2: ", 0) == 0);
}

TEST_CASE("mesh axes") {
  CHECK(parse_mesh("ddp=2,domain=4") == MeshAxes{{"ddp", 2}, {"domain", 4}});
  CHECK(parse_mesh("").empty());
  CHECK(format_mesh(parse_mesh("a=1,b=20")) == "a=1,b=20");
  for (const char* wrong :
       {"ddp", "ddp=", "=2", "ddp=0", "ddp=-1", "ddp=2,", ",", "ddp=2,ddp=2", "ddp=2.5", "ddp=2;b=3"}) {
    const std::string message = error_of([&] { parse_mesh(wrong); });
    CHECK(message.find(wrong) != std::string::npos);
    CHECK(message.find("NAME=N") != std::string::npos);
  }
}

TEST_CASE("help names every option with its default, limits and unit") {
  Settings s;
  Config c = s.config();
  CHECK(c.parse({"--nonsense", "--help"}));
  const std::string help = c.help();
  for (const char* text :
       {"tessera-test", "--config FILE", "--steps", "default 400", "at least 1", "--model.depth, --depth",
        "--lr", "default 0.001 per step", "one of cpu, cuda", "\nModel\n", "\nOptimizer\n"})
    CHECK(help.find(text) != std::string::npos);
}

TEST_CASE("an empty file sets nothing, a folder is no file") {
  const Communicator world = test_world();
  const std::string path = fmt::format("config_test_{}_{}.toml", world.size(), world.rank());
  { const std::ofstream empty(path); }
  Settings s;
  Config c = s.config();
  CHECK_FALSE(c.parse({"--config", path, "--steps", "7"}));
  CHECK(s.steps == 7);
  CHECK(s.depth == 4);
  std::remove(path.c_str());
  CHECK(error_of({"--config", path}) == fmt::format("config: file '{}' cannot be read", path));
  CHECK(error_of({"--config", "."}) == "config: file '.' cannot be read");
}

TEST_CASE("what one rank alone was told otherwise is refused on all") {
  const Communicator world = test_world();
  const auto told = [&](const std::vector<std::string>& rank_0, const std::vector<std::string>& others) {
    return error_of([&] {
      Settings s;
      Config c = s.config();
      c.add("data", &s.data, "a file").own_of_rank();
      c.parse(world.rank() == 0 ? rank_0 : others);
      c.check_same(world);
    });
  };
  CHECK(told({"--steps", "7", "--data", "a"}, {"--steps=7", "--data", "b"}) == "no error");
  CHECK(told({"--help"}, {"--help"}) == "no error");
  if (world.size() == 1) return;
  CHECK(told({}, {"--depth", "2"}) ==
        "tessera-test: model.depth must be the same on every rank, given 4 on rank 0 (default); 2 on rank 1 "
        "(command line)");
  CHECK(told({"--out", "a\"b"}, {"--steps", "7"}).find("given 400 on rank 0 (default); 7 on rank 1") !=
        std::string::npos);
  CHECK(told({"--out", "a\n"}, {"--out", "a"}).find("\"a\\u000a\" on rank 0") != std::string::npos);
  CHECK(told({"--help"}, {"--steps", "7"}).find("--help must be the same on every rank") !=
        std::string::npos);
}

TEST_CASE("metrics are one JSON object a line, written by rank 0") {
  const Communicator world = test_world();
  CHECK(metrics_line(
            "step",
            {{"step", std::int64_t{3}}, {"loss", 0.25}, {"done", false}, {"note", std::string("a\"b")}}) ==
        R"({"kind":"step","step":3,"loss":0.25,"done":false,"note":"a\"b"})");
  CHECK(metrics_line("step", {{"loss", std::nan("")}}) == R"({"kind":"step","loss":null})");
  const std::string path = "metrics_test_" + std::to_string(world.size()) + "/deep/metrics.jsonl";
  MetricsWriter writer(world, path);
  writer.write_json("config", "options", R"({"a":1})");
  writer.write("step", {{"rank", std::int64_t{world.rank()}}});
  world.barrier();
  std::ifstream in(path);  // before the writer is closed: every line is flushed
  std::stringstream text;
  text << in.rdbuf();
  CHECK(text.str() == "{\"kind\":\"config\",\"options\":{\"a\":1}}\n{\"kind\":\"step\",\"rank\":0}\n");
  world.barrier();
  const std::string message = error_of([&] { MetricsWriter(world, "/proc/no/metrics.jsonl"); });
  CHECK(message.find("'/proc/no/metrics.jsonl' cannot be written") != std::string::npos);
}

TEST_CASE("progress: rates, time left and lines") {
  std::FILE* out = std::tmpfile();
  REQUIRE(out != nullptr);
  Progress progress({.total_steps = 40, .every = 10, .out = out});
  progress.restart_clock(100.0);
  StepRates rates;
  for (int step = 1; step <= 25; ++step)
    rates = progress.update({step, 0.5, 4, 3 << 20, 0.05 * step}, 100.0 + 0.5 * step);
  CHECK(rates.seconds == Approx(0.5));
  CHECK(rates.samples_per_second == Approx(8.0));
  CHECK(rates.eta_seconds == Approx(7.5));
  CHECK(rates.comm_share == Approx(0.1));
  // A pause that is not training leaves the rates alone; a change of speed is followed.
  progress.restart_clock(1000.0);
  rates = progress.update({26, 0.5, 4, 3 << 20, 1.3}, 1000.5);
  CHECK(rates.samples_per_second == Approx(8.0));
  for (int step = 27; step <= 40; ++step)
    rates = progress.update({step, 0.5, 4, 3 << 20, 1.3}, 1000.5 + 1.0 * (step - 26));
  CHECK(rates.samples_per_second < 6.0);
  CHECK(rates.eta_seconds == 0.0);
  std::rewind(out);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  std::fclose(out);
  CHECK(std::count(text.begin(), text.end(), '\n') == 5);  // 1, 10, 20, 30, 40
  CHECK(text.rfind("step  1/40  loss 0.5000  8.0 samples/s  ETA 0:20  peak 3.00 MiB  comm 10.0 %\n", 0) == 0);
}

TEST_CASE("times and sizes are written for people") {
  CHECK(format_seconds(0.4) == "0:00");
  CHECK(format_seconds(65) == "1:05");
  CHECK(format_seconds(3 * 3600 + 309) == "3:05:09");
  CHECK(format_bytes(512) == "512 B");
  CHECK(format_bytes(3482) == "3.40 KiB");
  CHECK(format_bytes(212.0 * 1048576) == "212 MiB");
  CHECK(format_bytes(1.5 * 1073741824) == "1.50 GiB");
}
