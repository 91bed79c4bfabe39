// Reading and writing safetensors: odd but legal files, damaged files, and every stored case.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "runtime/error.h"
#include "verify/case.h"
#include "verify/json_text.h"
#include "verify/safetensors.h"

#ifndef TESSERA_CASES_DIR
#error "TESSERA_CASES_DIR must name the folder of the stored cases"
#endif

using namespace tessera;
using namespace tessera::verify;

namespace {

template <class T>
std::string raw(std::initializer_list<T> values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), values.begin(), out.size());
  return out;
}

std::string with_length(std::uint64_t length, const std::string& rest) { return raw({length}) + rest; }
std::string file_of(const std::string& header, const std::string& block = "") {
  return with_length(header.size(), header + block);
}

// The message of the Error(Io) that reading gives; empty if it reads, or "other: ..." if it fails otherwise.
std::string refusal(const std::string& bytes) {
  try {
    const SafetensorsFile file = SafetensorsFile::parse(bytes, "f.safetensors");
    for (const auto& [name, entry] : file.entries()) file.load(name);
    return "";
  } catch (const Error& e) {
    return e.kind() == ErrorKind::Io ? e.message() : "other: " + e.message();
  }
}
bool refused(const std::string& bytes, const std::string& why) {
  const std::string text = refusal(bytes);
  INFO(text);
  return text.find(why) != std::string::npos && text.find("f.safetensors") != std::string::npos;
}

// A path of this process alone, removed at the end.
struct ScratchFile {
  std::string path;
  explicit ScratchFile(const std::string& name)
      : path((std::filesystem::temp_directory_path() / (std::to_string(::getpid()) + "_" + name)).string()) {}
  ~ScratchFile() { std::filesystem::remove(path); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
};

const std::string kTwoFloats = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

void require_equal(const Array& a, const Array& b) {
  REQUIRE(a.sizes() == b.sizes());
  REQUIRE(a.dtype() == b.dtype());
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    REQUIRE((a.at(i) == b.at(i) || (std::isnan(a.at(i)) && std::isnan(b.at(i)))));
  }
}

std::string case_path(const std::string& name) {
  return std::string(TESSERA_CASES_DIR) + "/" + name + ".safetensors";
}

}  // namespace

TEST_CASE("odd but legal headers load") {
  SECTION("a header whose length is no multiple of 8: the data is misaligned") {
    REQUIRE(kTwoFloats.size() == 54);
    const Array a = SafetensorsFile::parse(file_of(kTwoFloats, raw({1.5F, -2.0F})), "f").load("a");
    CHECK(a.to_vector() == std::vector<double>{1.5, -2.0});
  }
  SECTION("misaligned 8-byte values") {
    const std::string header =
        R"({"f":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"i":{"dtype":"I64","shape":[2],"data_offsets":[1,17]}})";
    const auto file =
        SafetensorsFile::parse(file_of(header, raw({'\x07'}) + raw({std::int64_t{-5}, INT64_MAX})), "f");
    CHECK(file.load("i").data<std::int64_t>()[1] == INT64_MAX);
    CHECK(file.load("f").at(0) == 1.0);
  }
  SECTION("empty metadata") {
    const auto file = SafetensorsFile::parse(
        file_of(R"({"__metadata__":{},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", raw({1.5F})),
        "f");
    CHECK(file.metadata().empty());
    CHECK(file.load("a").at(0) == 1.5);
  }
  SECTION("metadata only, and nothing at all") {
    const auto file = SafetensorsFile::parse(file_of(R"({"__metadata__":{"k":"v"}})"), "f");
    CHECK(file.entries().empty());
    CHECK(file.metadata().at("k") == "v");
    CHECK(SafetensorsFile::parse(file_of("{}"), "f").entries().empty());
  }
  SECTION("sizes 0, 0-dim, and half precision at an offset of 4") {
    const std::string header =
        R"({"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"z":{"dtype":"I64","shape":[2,0,3],"data_offsets":[0,0]},)"
        R"("s":{"dtype":"I32","shape":[],"data_offsets":[0,4]},"h":{"dtype":"F16","shape":[5],"data_offsets":[4,14]}})";
    const std::string halves = raw<std::uint16_t>({0x3C00, 0xC000, 0x0001, 0x7C00, 0x7BFF});
    const auto file = SafetensorsFile::parse(file_of(header, raw({std::int32_t{7}}) + halves), "f");
    CHECK(file.load("e").sizes() == Dims{0});
    CHECK(file.load("z").sizes() == Dims{2, 0, 3});
    CHECK(file.load("s").dim() == 0);
    CHECK(file.load("s").at(0) == 7.0);
    const std::vector<double> want{1.0, -2.0, std::ldexp(1.0, -24), std::numeric_limits<double>::infinity(),
                                   65504.0};
    CHECK(file.load("h").to_vector() == want);
  }
  SECTION("spaces after the header") {
    const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})"
                               "   ";
    CHECK(SafetensorsFile::parse(file_of(header, raw({1.0F})), "f").load("a").at(0) == 1.0);
  }
  SECTION("a type that arrays lack spoils only itself") {
    const std::string header =
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"u":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
    const auto file = SafetensorsFile::parse(file_of(header, raw({2.5F}) + "xy"), "f");
    CHECK(file.load("a").at(0) == 2.5);
    CHECK_THROWS_WITH(file.load("u"), Catch::Contains("\"u\" is U8, allowed are F32"));
    CHECK_THROWS_WITH(file.load("b"), Catch::Contains("has no tensor \"b\""));
  }
}

TEST_CASE("damaged files are refused with what is wrong") {
  const std::string data = raw({1.5F, -2.0F});
  CHECK(refusal(file_of(kTwoFloats, data)).empty());
  CHECK(refused("", "only 0 bytes"));
  CHECK(refused("abc", "only 3 bytes"));
  CHECK(refused(with_length(54, "{"), "truncated, the header has 54 bytes but only 1 follow"));
  CHECK(refused(with_length(std::numeric_limits<std::uint64_t>::max(), "{}"), "is announced"));
  CHECK(refused(file_of(kTwoFloats, data.substr(0, 5)),
                "truncated, the tensors need 8 bytes of data but only 5"));
  CHECK(refused(file_of(kTwoFloats, data + "x"), "1 bytes after the last tensor"));
  CHECK(refused(file_of("[1,2]"), "not a JSON object"));
  CHECK(refused(file_of("{\"a\":"), "not JSON"));
  CHECK(refused(file_of(std::string(1000, '[')), "not JSON"));
  const auto entry = [](const std::string& text) {
    return file_of("{\"a\":" + text + "}", raw({1.5F, -2.0F}));
  };
  CHECK(refused(entry("3"), "\"dtype\" is missing"));
  CHECK(refused(entry(R"({"dtype":"F32","shape":[2]})"), "\"data_offsets\" is missing"));
  CHECK(refused(entry(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})"), "unknown dtype \"F33\""));
  CHECK(refused(entry(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), "shape is 2"));
  CHECK(refused(entry(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "shape holds -2"));
  CHECK(refused(entry(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), "shape holds 2.0"));
  CHECK(
      refused(entry(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})"), "up to 8 sizes"));
  CHECK(refused(entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), "do not hold the 12 bytes"));
  CHECK(refused(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "[8, 0]"));
  CHECK(refused(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"), "gap or overlap"));
  CHECK(refused(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,9]})"), "allowed is [begin, end]"));
  CHECK(refused(entry(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]})"),
                "too large to count"));
  CHECK(refused(entry(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"),
                "whole number"));
  CHECK(refused(
      file_of("{\"a\":" + kTwoFloats.substr(5, 48) + ",\"a\":" + kTwoFloats.substr(5, 48) + "}", data),
      "\"a\" twice"));
  CHECK(refused(file_of(R"({"__metadata__":{"k":1}})"), "\"k\" is not a string"));
  CHECK(refused(file_of(R"({"__metadata__":[]})"), "not a map of strings"));
  CHECK_THROWS_WITH(SafetensorsFile::read("no/such/file"), Catch::Contains("cannot open no/such/file"));
}

TEST_CASE("no truncation and no changed byte does harm") {
  std::ifstream in(case_path("where_plain"), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  REQUIRE(refusal(whole).empty());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    REQUIRE(refused(whole.substr(0, length), ""));
    REQUIRE_FALSE(refusal(whole.substr(0, length)).empty());
  }
  for (std::size_t at = 0; at < std::min<std::size_t>(whole.size(), 1500); ++at) {
    for (const int flip : {0x01, 0x10, 0x80}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      REQUIRE(refusal(changed).find("other: ") == std::string::npos);
    }
  }
}

TEST_CASE("what is written reads back") {
  const ScratchFile scratch("written.safetensors");
  std::map<std::string, Array> arrays;
  for (DType t : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::Bool}) {
    arrays[std::string(name_of(t))] = Array::from(std::vector<double>{0, 1, 1, 0, 1, 1}, {2, 3}, t);
  }
  arrays["turned"] = Array::from(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}, DType::F32).transpose(0, 1);
  arrays["spread"] = Array::from(std::vector<double>{1, 2}, {2, 1}, DType::F64).expand({2, 3});
  arrays["scalar"] = Array::full({}, -2.5, DType::F64);
  arrays["nothing"] = Array::zeros({3, 0, 2}, DType::F32);
  write_safetensors(scratch.path, arrays, {{"what", "quotes \" and \n lines"}});
  const SafetensorsFile file = SafetensorsFile::read(scratch.path);
  CHECK(file.metadata().at("what") == "quotes \" and \n lines");
  REQUIRE(file.entries().size() == arrays.size());
  for (const auto& [name, array] : arrays) {
    INFO(name);
    require_equal(file.load(name), array);
    CHECK(file.entries().at(name).begin % size_of(array.dtype()) == 0);
  }
  write_safetensors(scratch.path, {});
  CHECK(SafetensorsFile::read(scratch.path).entries().empty());
  CHECK_THROWS_WITH(write_safetensors("no/such/folder/f", {}),
                    Catch::Contains("cannot write no/such/folder/f"));
}

TEST_CASE("a case says what it is") {
  const Case c = load_case(case_path("reported_periodic_map"));
  CHECK(c.name == "reported_periodic_map");
  CHECK(c.source.find("PyTorch") == 0);
  CHECK(c.outputs.at("y").to_vector() ==
        std::vector<double>{222, 219, 264, 237, 306, 303, 348, 321, 486, 483, 528, 501, 282, 279, 324, 297});
  CHECK(c.gradients.at("w").to_vector() ==
        std::vector<double>{952, 976, 952, 1336, 1360, 1336, 952, 976, 952});
  REQUIRE(c.program.size() == 1);
  CHECK(c.program[0].op == "conv2d");
  REQUIRE(c.program[0].in.size() == 3);
  CHECK(c.program[0].in[1] == "w");
  CHECK_FALSE(c.program[0].in[2].has_value());
  CHECK(c.program[0].args.at("padding_mode") == "circular");
  REQUIRE(c.limits.size() == 1);
  CHECK(c.limits[0].ranks() == 2);
  CHECK(c.limits[0].placements.at("x")[0].str() == "S3");
  CHECK(c.limits[0].cuts.at("x")[0] == std::vector<std::int64_t>{2, 2});
  CHECK(c.limits[0].max_forward_bytes == 64);
  CHECK(c.needs_gradient("x"));
  CHECK(c.leaf("w")->sizes() == Dims{1, 1, 3, 3});
  CHECK(c.leaf("nobody") == nullptr);
  CHECK_FALSE(c.has_second_derivatives());
}

TEST_CASE("every stored case loads, and is the same when saved again") {
  const ScratchFile scratch("again.safetensors");
  int cases = 0;
  int second = 0;
  for (const auto& file : std::filesystem::directory_iterator(TESSERA_CASES_DIR)) {
    if (file.path().extension() != ".safetensors") continue;
    INFO(file.path());
    const Case c = load_case(file.path().string());
    CHECK(c.name == file.path().stem().string());
    CHECK_FALSE(c.program.empty());
    CHECK_FALSE(c.outputs.empty());
    for (const auto& [name, array] : c.outputs)  // numbers and masks have none
      CHECK(c.cotangents.count(name) == (is_floating(array.dtype()) ? 1 : 0));
    for (const auto& [name, array] : c.cotangents) CHECK(array.sizes() == c.outputs.at(name).sizes());
    for (const auto& [name, array] : c.second_gradients) CHECK(c.allowed_error("grad2." + name) > 0);
    save_case(c, scratch.path);
    const Case d = load_case(scratch.path);
    for (auto part : {&Case::inputs, &Case::params, &Case::outputs, &Case::cotangents, &Case::gradients,
                      &Case::directions, &Case::second_gradients}) {
      REQUIRE((c.*part).size() == (d.*part).size());
      for (const auto& [name, array] : c.*part) require_equal(array, (d.*part).at(name));
    }
    REQUIRE(c.program.size() == d.program.size());
    for (std::size_t i = 0; i < c.program.size(); ++i) {
      CHECK(c.program[i].in == d.program[i].in);
      CHECK(json_text(c.program[i].args) == json_text(d.program[i].args));  // NaN is not equal to itself
    }
    CHECK(c.tolerance == d.tolerance);
    REQUIRE(c.limits.size() == d.limits.size());
    for (std::size_t i = 0; i < c.limits.size(); ++i) {
      CHECK(c.limits[i].placements == d.limits[i].placements);
      CHECK(c.limits[i].cuts == d.limits[i].cuts);
    }
    ++cases;
    second += c.has_second_derivatives() ? 1 : 0;
  }
  CHECK(cases > 400);
  CHECK(second > 80);
}

TEST_CASE("a case whose parts do not fit together is refused") {
  const ScratchFile scratch("bad.safetensors");
  Case c = load_case(case_path("linear_tokens"));
  const auto why = [&] {
    save_case(c, scratch.path);
    try {
      load_case(scratch.path);
      return std::string("accepted");
    } catch (const Error& e) {
      return e.kind() == ErrorKind::Io ? e.message() : "other: " + e.message();
    }
  };
  CHECK(why() == "accepted");
  SECTION("a name that nothing made") {
    c.program[0].in[1] = "q";
    CHECK_THAT(why(), Catch::Contains("reads \"q\""));
  }
  SECTION("an output that no step makes") {
    c.program[0].out = {"z"};
    CHECK_THAT(why(), Catch::Contains("the output \"y\""));
  }
  SECTION("no tolerance") {
    c.tolerance.erase("grad.w");
    CHECK_THAT(why(), Catch::Contains("no tolerance for grad.w"));
  }
  SECTION("a gradient of other sizes") {
    c.gradients["w"] = Array::zeros({3}, DType::F32);
    CHECK_THAT(why(), Catch::Contains("grad.w has sizes [3], expected [8, 6]"));
  }
  SECTION("a gradient of nothing") {
    c.gradients["q"] = Array::zeros({3}, DType::F32);
    CHECK_THAT(why(), Catch::Contains("grad.q"));
  }
  SECTION("a cotangent of nothing") {
    c.cotangents["q"] = c.cotangents["y"];
    CHECK_THAT(why(), Catch::Contains("cot.q has nothing"));
  }
  SECTION("cuts that do not tile") {
    c.limits[0].cuts["x"] = {{4, 4}};
    CHECK_THAT(why(), Catch::Contains("into [4, 4] over 2 ranks"));
  }
  SECTION("a dim that is not there") {
    c.limits[0].placements["x"][0].dim = 3;
    CHECK_THAT(why(), Catch::Contains("limits place \"x\" [2, 9, 6] by \"S3\""));
  }
  SECTION("placements for another mesh") {
    c.limits[0].mesh = {2, 2};
    CHECK_THAT(why(), Catch::Contains("1 placements on a mesh of 2"));
  }
}

TEST_CASE("a file that is no case is refused") {
  const ScratchFile scratch("no_case.safetensors");
  const auto refused = [&](const auto& arrays, const auto& metadata, const char* text) {
    write_safetensors(scratch.path, arrays, metadata);
    CHECK_THROWS_WITH(load_case(scratch.path), Catch::Contains(text));
  };
  using Arrays = std::map<std::string, Array>;
  using Texts = std::map<std::string, std::string>;
  refused(Arrays{{"x", Array::zeros({1}, DType::F32)}}, Texts{{"format", "tessera-case-1"}, {"name", "n"}},
          "\"x\" has no known prefix");
  refused(Arrays{}, Texts{{"format", "tessera-case-9"}}, "format \"tessera-case-9\", allowed is");
  refused(Arrays{}, Texts{}, "metadata \"format\" is missing");
  refused(Arrays{},
          Texts{{"format", "tessera-case-1"}, {"name", "n"}, {"program", "[{"}, {"tolerance", "{}"}},
          "program cannot be read");
}
