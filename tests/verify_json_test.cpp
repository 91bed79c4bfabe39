// The numbers that Python's json module writes and standard JSON lacks, in case files and everywhere between.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <limits>

#include "ops/ops.h"
#include "runtime/error.h"
#include "verify/case.h"
#include "verify/json_text.h"
#include "verify/programs.h"
#include "verify/safetensors.h"

using namespace tessera;
using namespace tessera::verify;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("JSON with NaN and infinities, as Python's json.dumps writes it") {
  const auto j = parse_json(R"({"a": NaN, "b": [Infinity, -Infinity, -1.5], "c": {"d": Infinity}, "e": 3})");
  CHECK(std::isnan(j.at("a").get<double>()));
  CHECK(j.at("b").get<std::vector<double>>() == std::vector<double>{kInf, -kInf, -1.5});
  CHECK(j.at("c").at("d").get<double>() == kInf);
  CHECK(j.at("e").is_number_integer());
  CHECK(parse_json("-Infinity").get<double>() == -kInf);
  // Inside strings they are text, whatever is escaped there.
  for (const char* text :
       {R"(["NaN", "-Infinity"])", R"(["say \"NaN\" or \\", "Infinity"])", R"({"NaN":"\\"})"})
    CHECK(parse_json(text) == nlohmann::json::parse(text));
  for (const char* text : {"nan", "inf", "-NaN", "+Infinity", "Infinit", "[NaN", "NaN 1", "1NaN", ""}) {
    INFO(text);
    CHECK_THROWS_AS(parse_json(text), nlohmann::json::exception);
  }
}

TEST_CASE("JSON with NaN and infinities is written as it is read") {
  for (const char* text :
       {R"({"a":[NaN,-Infinity,{"b":Infinity}],"c":"Infinity"})", "NaN", "[1,2.5,null,true]"})
    CHECK(json_text(parse_json(text)) == text);
  CHECK(json_text(nlohmann::json(-kInf)) == "-Infinity");
}

TEST_CASE("a case file whose arguments are infinite loads, and is the same when saved again") {
  const std::string path = std::string(TESSERA_CASES_DIR) + "/kink_clamp.safetensors";
  SafetensorsFile file = SafetensorsFile::read(path);
  std::map<std::string, Array> tensors;
  for (const auto& [name, entry] : file.entries()) tensors[name] = file.load(name);
  auto metadata = file.metadata();
  metadata["program"] =
      R"([{"op": "clamp", "in": ["x"], "out": ["y"], "args": {"min": -Infinity, "max": Infinity, "note": NaN}}])";
  const std::string name = std::to_string(::getpid()) + "_infinite.safetensors";
  const std::string copy = (std::filesystem::temp_directory_path() / name).string();
  write_safetensors(copy, tensors, metadata);
  const Case c = load_case(copy);
  CHECK(c.program[0].args.at("min").get<double>() == -kInf);
  save_case(c, copy);
  const Case again = load_case(copy);
  CHECK(again.program[0].args.at("max").get<double>() == kInf);
  CHECK(std::isnan(again.program[0].args.at("note").get<double>()));
  std::filesystem::remove(copy);
}

TEST_CASE("infinite arguments reach the operations; where a whole number is needed they are refused") {
  const Tensor x(Array::from(std::vector<double>{-3, 1, 2}, {3}, DType::F64));
  const auto apply = [&](const char* op, const char* args) { return apply_op(op, {x}, parse_json(args))[0]; };
  CHECK(apply("clamp", R"({"min": -Infinity, "max": 1.5})").to_vector() == std::vector<double>{-3, 1, 1.5});
  CHECK(apply("norm", R"({"p": Infinity, "dim": null})").item() == 3);
  CHECK(apply("norm", R"({"p": -Infinity, "dim": null})").item() == 1);
  CHECK(std::isnan(apply("clamp", R"({"min": NaN})").to_vector()[0]));
  CHECK(apply("softmax", R"({"dim": 0.0})").numel() == 3);
  for (const char* dim : {"Infinity", "NaN", "0.5", "\"0\""}) {
    INFO(dim);
    CHECK_THROWS_WITH(apply("softmax", fmt::format("{{\"dim\": {}}}", dim).c_str()),
                      Catch::Contains(fmt::format("argument \"dim\" is {}", dim)));
  }
}

TEST_CASE("arguments that PyTorch refuses are refused") {
  const Tensor x(Array::zeros({2, 3, 6}, DType::F64));
  const auto apply = [&](const char* op, const Tensor& t, const char* args) {
    return apply_op(op, {t}, parse_json(args))[0];
  };
  CHECK_THROWS_WITH(apply("clamp", x, R"({"min": null, "max": null})"),
                    Catch::Contains("neither min nor max"));
  CHECK_THROWS_WITH(apply("sum", x, R"({"dim": [1.5]})"), Catch::Contains("argument \"dim\" is [1.5]"));
  CHECK(apply("sum", x, R"({"dim": [1.0]})").sizes() == Dims{2, 6});
  CHECK_THROWS_WITH(apply("argmax", to(x, DType::Bool), R"({"dim": 0})"), Catch::Contains("bool"));
  CHECK_THROWS_WITH(apply("adaptive_avg_pool1d", x, R"({"output_size": [-1]})"),
                    Catch::Contains("output_size must be at least 0"));
  CHECK(apply("adaptive_avg_pool1d", x, R"({"output_size": [null]})").sizes() == x.sizes());
}
