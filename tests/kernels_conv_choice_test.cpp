// The ways in which a convolution can be worked out, and the choice between them.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ops/cpu/conv_choice.h"
#include "runtime/error.h"
#include "tests/kernels_conv_cases.h"

using namespace tessera;
using namespace tessera::kernel_tests;
using cpu::ConvChoice;

namespace {

constexpr ConvChoice kForced[] = {ConvChoice::ChannelsLast, ConvChoice::Any, ConvChoice::Own};

// Puts the choice back and forgets what was chosen.
struct ChoiceScope {
  ChoiceScope() { cpu::forget_conv_plans(); }
  ~ChoiceScope() {
    cpu::set_conv_choice(before);
    cpu::forget_conv_plans();
  }
  ConvChoice before = cpu::conv_choice();
};

struct TemporaryFile {
  TemporaryFile() {
    path = (std::filesystem::temp_directory_path() / "tessera_plans_XXXXXX").string();
    const int fd = ::mkstemp(path.data());
    REQUIRE(fd >= 0);
    ::close(fd);
  }
  ~TemporaryFile() { std::remove(path.c_str()); }
  void write(const std::string& text) const { std::ofstream(path) << text; }
  std::string read() const {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string path;
};

// A convolution large enough to be timed, and its three results.
struct Timed {
  Dims x_sizes{2, 24, 20, 20}, y_sizes{2, 40, 20, 20}, w_sizes{40, 24, 3, 3};
  cpu::ConvGeometry g{{1, 1}, {1, 1}, {1, 1}, {1, 1}, 1};
  Array x, dy, w;

  explicit Timed(Random& random)
      : x(map(x_sizes, random)),
        dy(map(y_sizes, random)),
        w(random_array(w_sizes, DType::F32, random).clone()) {}
  static Array map(const Dims& sizes, Random& random) {
    const Array a = Array::empty_strided(sizes, cpu::channels_last_strides(sizes), DType::F32, Device::Cpu);
    a.copy_(random_array(sizes, DType::F32, random, 1.0));
    return a;
  }
  std::vector<std::vector<double>> results() const {
    const Array y =
        Array::empty_strided(y_sizes, cpu::channels_last_strides(y_sizes), DType::F32, Device::Cpu);
    const Array dx =
        Array::empty_strided(x_sizes, cpu::channels_last_strides(x_sizes), DType::F32, Device::Cpu);
    const Array dw = Array::empty(w_sizes, DType::F32);
    cpu::conv_forward({y, x, w, {}, g});
    cpu::conv_backward_data({dx, dy, w, g});
    cpu::conv_backward_weight({dw, dy, x, g});
    return {y.to_vector(), dx.to_vector(), dw.to_vector()};
  }
};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("every way of a convolution agrees with double loops") {
  Random random(seed());
  const ChoiceScope scope;
  for (ConvChoice way : kForced)
    for_each_isa([&] {
      cpu::set_conv_choice(way);
      INFO("way " << static_cast<int>(way));
      for (int spatial = 1; spatial <= 3; ++spatial)
        for (int trial = 0; trial < 12; ++trial)
          check_conv(random_conv(spatial, random), trial % 4 == 3 ? DType::F64 : DType::F32, random);
      check_conv(random_conv(2, random), DType::BF16, random);
      // A kernel position that meets nothing but padding has a gradient of 0.
      for (std::int64_t outputs : {1, 8, 32})
        check_conv({1, 3, outputs, 1, {1}, {3}, {2}, {2}, {1}, {1}}, DType::BF16, random);
      // Few channels in a group, kernel rows with gaps between them.
      check_conv({1, 16, 16, 16, {12, 36}, {5, 7}, {1, 1}, {2, 1}, {2, 1}, {2, 1}}, DType::BF16, random);
      check_conv({2, 16, 16, 16, {19, 38}, {2, 4}, {1, 1}, {1, 1}, {1, 1}, {2, 1}}, DType::BF16, random);
      check_conv({1, 16, 16, 2, {16, 40}, {3, 7}, {1, 1}, {1, 0}, {1, 0}, {2, 1}}, DType::BF16, random);
      check_conv({1, 16, 16, 16, {6, 5, 36}, {2, 2, 5}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {2, 1, 1}},
                 DType::BF16, random);
    });
}

TEST_CASE("every way agrees where lines are long and channels fill several vectors, or not quite") {
  Random random(seed());
  const ChoiceScope scope;
  for (ConvChoice way : kForced)
    for_each_isa([&] {
      cpu::set_conv_choice(way);
      for (int trial = 0; trial < 6; ++trial) {
        const bool deep = trial % 3 == 2;
        ConvCase c;
        c.n = pick(random, 1, 2);
        c.groups = trial == 1 ? 2 : 1;
        const std::int64_t outputs = pick(random, 1, 70);
        c.c = c.groups * pick(random, 1, std::clamp<std::int64_t>(300 / outputs, 1, 40));
        c.o = c.groups * outputs;
        const std::int64_t stride = pick(random, 1, 3);
        c.stride = deep ? Dims{pick(random, 1, 2), 1, stride} : Dims{pick(random, 1, 2), stride};
        c.kernel = deep ? Dims{2, 3, pick(random, 1, 5)} : Dims{pick(random, 1, 4), pick(random, 1, 7)};
        c.dilation = Dims::filled(deep ? 3 : 2, stride == 1 && coin(random) ? 2 : 1);
        c.lo = Dims::filled(deep ? 3 : 2, pick(random, 0, 3));
        c.hi = Dims::filled(deep ? 3 : 2, pick(random, 0, 3));
        c.in = deep ? Dims{4, 5, pick(random, 13, 120)} : Dims{8, pick(random, 13, 230)};
        check_conv(c, trial % 2 == 0 ? DType::F32 : DType::F64, random);
      }
    });
}

// Channels that fill some cache lines, or not quite; lines in one strip or several.
TEST_CASE("every way agrees where each channel has one filter") {
  Random random(seed());
  const ChoiceScope scope;
  for (ConvChoice way : kForced)
    for_each_isa([&] {
      cpu::set_conv_choice(way);
      for (int trial = 0; trial < 12; ++trial) {
        const int spatial = 1 + trial % 3;
        ConvCase c;
        c.n = pick(random, 1, 2);
        c.groups = c.c = c.o = pick(random, 2, trial < 6 ? 20 : 150);
        for (int d = 0; d < spatial; ++d) {
          const bool last = d + 1 == spatial;
          c.kernel.push_back(last ? pick(random, 1, 8) : pick(random, 1, 4));
          c.stride.push_back(pick(random, 0, 2) == 0 ? 2 : 1);
          c.dilation.push_back(pick(random, 0, 2) == 0 ? 2 : 1);
          c.lo.push_back(pick(random, 0, 9));
          c.hi.push_back(pick(random, 0, 9));
          const std::int64_t range = c.dilation[d] * (c.kernel[d] - 1) + 1;
          const std::int64_t more = !last ? 3 : trial < 6 ? 120 : 20;
          c.in.push_back(std::max<std::int64_t>(1, range - c.lo[d] - c.hi[d]) + pick(random, 0, more));
        }
        check_conv(c, trial % 3 == 2 ? DType::F64 : DType::F32, random);
      }
    });
}

// Positions that share a vector, and those of a stride that count as one, must not share their NaN.
TEST_CASE("a NaN is seen by the windows that hold it and by no other, whatever the way") {
  Random random(seed());
  const ChoiceScope scope;
  for (ConvChoice way : kForced)
    for_each_isa([&] {
      cpu::set_conv_choice(way);
      for (int trial = 0; trial < 16; ++trial) {
        ConvCase c = random_conv(2, random);
        c.n = c.groups = 1;
        c.c = pick(random, 1, 3);
        c.o = pick(random, 1, 3);
        const DType dtype = trial % 4 == 3 ? DType::F64 : DType::F32;
        INFO("way " << static_cast<int>(way) << ' ' << c.text());
        const Array w = random_array(with_spatial(c.o, c.c, c.kernel), dtype, random).clone();
        const Array x = random_array(with_spatial(1, c.c, c.in), dtype, random).clone();
        const Array dy = random_array(with_spatial(1, c.o, c.out()), dtype, random).clone();
        const double bad = coin(random) ? NAN : INFINITY;
        const auto spoil = [&](const Array& a) {
          const std::int64_t at = pick(random, 0, a.numel() - 1);
          a.reshape({a.numel()}).slice(0, at, 1).fill_(bad);
          return static_cast<std::size_t>(at);
        };
        const std::size_t in_x = spoil(x);
        const std::size_t in_dy = spoil(dy);
        std::vector<bool> y_bad(static_cast<std::size_t>(dy.numel()));
        std::vector<bool> dx_bad(static_cast<std::size_t>(x.numel()));
        for_each_product(c, [&](std::size_t o, std::size_t i, std::size_t) {
          if (i == in_x) y_bad[o] = true;
          if (o == in_dy) dx_bad[i] = true;
        });
        const Array y = Array::empty(dy.sizes(), dtype);
        const Array dx = Array::empty(x.sizes(), dtype);
        const cpu::ConvGeometry g{c.stride, c.lo, c.hi, c.dilation, 1};
        cpu::conv_forward({y, x, w, {}, g});
        cpu::conv_backward_data({dx, dy, w, g});
        const auto same = [](const Array& got, const std::vector<bool>& bad_at) {
          const std::vector<double> values = got.to_vector();
          for (std::size_t i = 0; i < values.size(); ++i)
            if (std::isfinite(values[i]) == bad_at[i]) return false;
          return true;
        };
        CHECK(same(y, y_bad));
        CHECK(same(dx, dx_bad));
      }
    });
}

// Windows that reach beyond the outputs are none: what stands for them meets no weight.
TEST_CASE("a weight that is not finite is seen by the gradients that it is a factor of, whatever the way") {
  Random random(seed());
  const ChoiceScope scope;
  for (ConvChoice way : kForced)
    for_each_isa([&] {
      cpu::set_conv_choice(way);
      for (int trial = 0; trial < 48; ++trial) {
        ConvCase c = random_conv(1 + trial % 3, random);
        c.n = 1;
        if (c.groups < 16) c.groups = 1;
        const DType dtype = trial % 2 == 1 ? DType::F64 : DType::F32;
        INFO("way " << static_cast<int>(way) << ' ' << name_of(dtype) << ' ' << c.text());
        const Array w = random_array(with_spatial(c.o, c.c / c.groups, c.kernel), dtype, random).clone();
        const Array dy = random_array(with_spatial(1, c.o, c.out()), dtype, random).clone();
        const Array dx = Array::empty(with_spatial(1, c.c, c.in), dtype);
        const std::int64_t at = pick(random, 0, w.numel() - 1);
        w.reshape({w.numel()}).slice(0, at, 1).fill_(coin(random) ? NAN : INFINITY);
        std::vector<bool> bad(static_cast<std::size_t>(dx.numel()));
        for_each_product(c, [&](std::size_t, std::size_t i, std::size_t k) {
          if (k == static_cast<std::size_t>(at)) bad[i] = true;
        });
        cpu::conv_backward_data({dx, dy, w, {c.stride, c.lo, c.hi, c.dilation, c.groups}});
        std::vector<bool> got;
        for (const double v : dx.to_vector()) got.push_back(!std::isfinite(v));
        CHECK(got == bad);
      }
    });
}

TEST_CASE("a measured choice is kept in a file and holds again") {
  Random random(seed());
  const ChoiceScope scope;
  const TemporaryFile file;
  const Timed conv(random);
  cpu::set_conv_choice(ConvChoice::Measure);
  const auto measured = conv.results();
  CHECK(conv.results() == measured);  // the second call goes the same way as the first
  cpu::save_conv_plans(file.path);
  const std::string text = file.read();
  CHECK(std::count(text.begin(), text.end(), '\n') == 4);  // its name and three passes
  cpu::save_conv_plans(file.path);
  CHECK(file.read() == text);

  cpu::forget_conv_plans();
  cpu::load_conv_plans(file.path);
  CHECK(conv.results() == measured);
  cpu::set_conv_choice(ConvChoice::Rule);  // which does not time, but goes by what it is told
  CHECK(conv.results() == measured);
  const TemporaryFile again;
  cpu::save_conv_plans(again.path);
  CHECK(again.read() == text);
}

TEST_CASE("what a file says is done") {
  Random random(seed());
  const ChoiceScope scope;
  const TemporaryFile file;
  const Timed conv(random);
  cpu::set_conv_choice(ConvChoice::Measure);
  conv.results();
  cpu::save_conv_plans(file.path);
  for (ConvChoice way : kForced) {
    std::string text = file.read();
    const std::string word = cpu::name_of(static_cast<cpu::ConvWay>(way));
    for (const char* other : {" channels_last\n", " any\n", " own\n"})
      replace_all(text, other, " " + word + "\n");
    file.write(text);
    cpu::forget_conv_plans();
    cpu::load_conv_plans(file.path);
    cpu::set_conv_choice(ConvChoice::Measure);
    const auto told = conv.results();
    cpu::set_conv_choice(way);
    CHECK(told == conv.results());
  }
}

TEST_CASE("a file whose last line was not written to its end loses that line alone") {
  Random random(seed());
  const ChoiceScope scope;
  const TemporaryFile file;
  const Timed conv(random);
  cpu::set_conv_choice(ConvChoice::Measure);
  const auto measured = conv.results();
  cpu::save_conv_plans(file.path);
  const std::string text = file.read();
  const auto saved_over = [&](const std::string& there) {
    file.write(there);
    cpu::save_conv_plans(file.path);
    std::string now = file.read();
    cpu::forget_conv_plans();
    cpu::load_conv_plans(file.path);
    CHECK(conv.results() == measured);
    return now;
  };
  for (std::size_t length = 0; length <= text.size(); ++length) {
    INFO(length << " of " << text.size() << " characters");
    CHECK(saved_over(text.substr(0, length)) == text);
    file.write(text.substr(0, length));
    cpu::load_conv_plans(file.path);
  }
  file.write("somebody's notes");
  CHECK_THROWS_AS(cpu::save_conv_plans(file.path), Error);
  CHECK(file.read() == "somebody's notes");
}

TEST_CASE("files that are none of ours are refused") {
  const ChoiceScope scope;
  const TemporaryFile file;
  const auto refusal = [&]() -> std::string {
    try {
      cpu::load_conv_plans(file.path);
    } catch (const Error& e) {
      return e.message();
    }
    return "";
  };
  const std::string first = "tessera convolution plans 1\n";
  const std::string line =
      "forward f32 avx2 threads=1 channels=1x1 groups=1 in=1x1 out=1 kernel=1 stride=1 dilation=1 padding=0 "
      "layout=last ";
  file.write("something else\n");
  CHECK(refusal().find("does not begin with") != std::string::npos);
  for (const std::string& bad :
       {line + "sideways", std::string("own"), std::string(), "more " + line + "own"}) {
    file.write(first + line + "own\n" + bad + "\n");
    const std::string message = refusal();
    INFO(message);
    CHECK(message.find("line 3 of '" + file.path + "'") != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
  file.write(first + line + "own\n" + line + "any\n");
  CHECK(refusal().empty());
  file.write(first);
  CHECK(refusal().empty());
  std::remove(file.path.c_str());
  CHECK(refusal().find("cannot open") != std::string::npos);
}
