// Numbers so large that sizes worked out from them wrap around 64 bits, or that are none: refused by the name
// of the operation that was called, before a size that looks right or an allocation comes of them.
#include <catch2/catch.hpp>

#include <limits>

#include "tests/refusal_lists.h"

using namespace tessera;
using namespace tessera::refusal_cases;

namespace {

using In = const Tensors&;
constexpr std::int64_t kHuge = std::int64_t{1} << 62;
constexpr std::int64_t kLarge = std::int64_t{1} << 40;  // fits, but not its square
const char* const kMost = "9223372036854775807";
const char* const kHugeText = "4611686018427387904";

}  // namespace

std::vector<Refusal> refusal_cases::huge_copy_refusals() {
  RefusalAdder add_case;
  const std::vector<Dims> x{{4, 6}};
  const std::vector<std::string> stored{"more bytes than 64 bits count", kMost};
  const auto times_huge = [](int n) {
    return std::vector<std::string>{std::to_string(n) + " times " + kHugeText, kMost};
  };
  add_case(
      "repeat", x,
      [](In t) {
        repeat(t[0], {kHuge, 1});
      },
      times_huge(4));
  add_case(
      "repeat", x,
      [](In t) {
        repeat(t[0], {kLarge, kLarge});
      },
      stored);
  add_case(
      "tile", x, [](In t) { tile(t[0], {kHuge}); }, times_huge(6));
  add_case(
      "repeat_interleave", x, [](In t) { repeat_interleave(t[0], kHuge, 0); }, times_huge(4));
  add_case(
      "repeat_interleave", x, [](In t) { repeat_interleave(t[0], kHuge / 8, 1); }, stored);
  add_case("pad", x, [](In t) { pad(t[0], {kHuge, kHuge}); }, {std::string(" + ") + kHugeText, kMost});
  add_case(
      "pad", x,
      [](In t) {
        pad(t[0], {0, kHuge});
      },
      stored);
  add_case("pad", {{1, 4, 6}},
           [](In t) {
             pad(t[0], {0, kLarge}, PadMode::Replicate);
           },
           {"dim 2 of size 6", "at most 68719476736"});
  add_case("radius_search", {{5, 2}, {4, 2}}, [](In t) { radius_search(t[0], t[1], 1.0, kHuge); },
           {std::string("[4, ") + kHugeText, "more bytes"});
  add_case.list.push_back({"one_hot",
                           {{{4}, DType::I64}},
                           [](In t) { one_hot(t[0], kHuge); },
                           {"[4, 4611686018427387904]", kMost}});
  return add_case.list;
}

std::vector<Refusal> refusal_cases::huge_shape_refusals() {
  RefusalAdder add_case;
  const std::vector<Dims> x{{4, 6}};
  const std::vector<std::string> counted{"more elements than 64 bits count", kMost};
  add_case(
      "expand", {{4, 1}},
      [](In t) {
        expand(t[0], {4, kHuge});
      },
      counted);
  add_case(
      "broadcast_to", {{4, 1}},
      [](In t) {
        broadcast_to(t[0], {kLarge, 4, kLarge});
      },
      counted);
  add_case(
      "reshape", x,
      [](In t) {
        reshape(t[0], {kHuge, 4});
      },
      counted);
  add_case(
      "reshape", x,
      [](In t) {
        reshape(t[0], {-1, kHuge, 4});
      },
      counted);
  add_case(
      "unflatten", x,
      [](In t) {
        unflatten(t[0], 1, {kHuge, 4});
      },
      counted);
  add_case("unflatten", x, [](In t) { unflatten(t[0], 1, {-2, -3}); }, {"negative", "[-2, -3]"});
  add_case("unflatten", x, [](In t) { unflatten(t[0], 1, {-1, -1}); }, {"only one", "[-1, -1]"});
  add_case("split", x,
           [](In t) {
             split(t[0], {kHuge, kHuge, kHuge, kHuge, 4}, 0);
           },
           {std::string(kHugeText) + " + " + kHugeText, kMost});
  add_case("pad", x, [](In t) { pad(t[0], {kHuge, kHuge}); }, {std::string(" + ") + kHugeText, kMost});
  return add_case.list;
}

std::vector<Refusal> refusal_cases::huge_window_refusals() {
  RefusalAdder add_case;
  const std::vector<Dims> line{{1, 2, 7}, {3, 2, 3}};
  const std::vector<Dims> map{{1, 2, 7, 5}, {3, 2, 3, 3}};
  const std::vector<std::string> twice{std::string(kHugeText) + " times 2", kMost};
  const std::vector<std::string> stored{"more bytes than 64 bits count", kMost};
  add_case(
      "conv2d", map, [](In t) { conv2d(t[0], t[1], {}, {.dilation = {kHuge}}); }, twice);
  add_case(
      "conv1d", line, [](In t) { conv1d(t[0], t[1], {}, {.dilation = {kHuge}, .same = true}); }, twice);
  add_case("conv1d", line, [](In t) { conv1d(t[0], t[1], {}, {.padding = {kHuge}}); },
           {std::string(kHugeText) + " + " + kHugeText, kMost});
  add_case(
      "conv2d", map, [](In t) { conv2d(t[0], t[1], {}, {.padding = {kLarge}}); }, stored);
  add_case(
      "conv1d", line,
      [](In t) { conv1d(t[0], t[1], {}, {.padding = {kHuge / 4}, .padding_mode = PaddingMode::Replicate}); },
      stored);
  add_case("conv_transpose1d", {{1, 2, 7}, {2, 3, 3}},
           [](In t) { conv_transpose1d(t[0], t[1], {}, {.stride = {kHuge}}); },
           {std::string("6 times ") + kHugeText, kMost});
  add_case(
      "conv_transpose1d", {{1, 2, 7}, {2, 3, 3}},
      [](In t) { conv_transpose1d(t[0], t[1], {}, {.dilation = {kHuge}}); }, twice);
  add_case(
      "conv_transpose2d", {{1, 2, 7, 5}, {2, 3, 3, 3}},
      [](In t) { conv_transpose2d(t[0], t[1], {}, {.stride = {kLarge}}); }, stored);
  add_case(
      "max_pool1d", {{1, 2, 7}}, [](In t) { max_pool1d(t[0], {3}, {.dilation = {kHuge}}); }, twice);
  add_case("max_pool1d", {{1, 2, 7}}, [](In t) { max_pool1d(t[0], {3}, {.padding = {kHuge}}); },
           {std::string("padding [") + kHugeText, "kernel_size [3]"});
  add_case("avg_pool1d", {{1, 2, 7}}, [](In t) { avg_pool1d(t[0], {3}, {.padding = {kHuge}}); },
           {std::string("padding [") + kHugeText, "kernel_size [3]"});
  const std::vector<std::string> long_dim{std::string("would have ") + kHugeText, "at most 68719476736"};
  add_case(
      "adaptive_avg_pool1d", {{1, 2, 7}}, [](In t) { adaptive_avg_pool1d(t[0], {kHuge}); }, long_dim);
  add_case(
      "interpolate", {{1, 2, 7}}, [](In t) { interpolate(t[0], {.size = {kHuge}}); }, long_dim);
  add_case(
      "interpolate", {{1, 2, 7}},
      [](In t) { interpolate(t[0], {.size = {kHuge}, .mode = InterpolateMode::Area}); }, long_dim);
  for (const auto& [factor, text] :
       std::vector<std::pair<double, std::string>>{{std::numeric_limits<double>::quiet_NaN(), "nan"},
                                                   {std::numeric_limits<double>::infinity(), "inf"},
                                                   {-std::numeric_limits<double>::infinity(), "-inf"},
                                                   {1e300, "1e+300"}})
    add_case("interpolate", {{1, 2, 7}},
             [factor = factor](In t) { interpolate(t[0], {.scale_factor = {factor}}); },
             {"spatial dim 0 of size 7", "scale_factor " + text, "1 to 68719476736"});
  return add_case.list;
}

TEST_CASE("sizes that 64 bits do not hold are refused", "[ops]") {
  check_all(huge_copy_refusals(), 160);
  check_all(huge_shape_refusals(), 161);
  check_all(huge_window_refusals(), 162);
}

TEST_CASE("numbers that are large, but make no large sizes, are taken", "[ops]") {
  const Tensor x = tensor(std::vector<double>{3, -1, 4, 1, -5, 9}, {1, 1, 6}, DType::F64);
  using Values = std::vector<double>;
  CHECK(max_pool1d(x, {kLarge}, {.stride = {kLarge}, .padding = {kLarge / 2}}).to_vector() == Values{9});
  CHECK(max_pool1d(x, {1}, {.stride = {2}, .dilation = {kHuge}}).to_vector() == Values{3, 4, -5});
  CHECK(max_pool1d(x, {2}, {.stride = {std::numeric_limits<std::int64_t>::max()}, .ceil_mode = true})
            .to_vector() == Values{3});
  CHECK(avg_pool1d(x, {kLarge}, {.stride = {kLarge}, .padding = {kLarge / 2}, .divisor_override = 1})
            .to_vector() == Values{11});
  CHECK(conv1d(x, ones({1, 1, 1}, DType::F64), {}, {.stride = {kHuge}, .dilation = {kHuge}}).to_vector() ==
        Values{3});
  CHECK(repeat(zeros({0, 2}), {kHuge, 1}).sizes() == Dims{0, 2});
}
