// Sizes and arguments that do not go with an operation, of those that the other lists leave out: refused with
// its name, what was given and what is allowed, in the same words on every rank, before anything is sent.
#include <catch2/catch.hpp>

#include "tests/refusal_lists.h"

namespace tessera::refusal_cases {
namespace {

using In = const Tensors&;
constexpr DType kI64 = DType::I64;

}  // namespace

std::vector<Refusal> more_reduction_refusals() {
  RefusalAdder add_case;
  const std::vector<Dims> x{{4, 6}};
  const std::vector<Dims> empty{{4, 0}};
  add_case("amax", x, [](In t) { amax(t[0], {2}); }, {"dim 2"});
  add_case("amin", x, [](In t) { amin(t[0], {-3}); }, {"dim -3"});
  add_case("amin", empty, [](In t) { amin(t[0]); }, {"dim 1 of [4, 0] is empty"});
  add_case("any", x, [](In t) { any(t[0], {2}); }, {"dim 2"});
  add_case("all", x, [](In t) { all(t[0], {0, 0}); }, {"dim 0"});
  add_case("count_nonzero", x, [](In t) { count_nonzero(t[0], {2}); }, {"dim 2"});
  add_case("argmax", x, [](In t) { argmax(t[0], 2); }, {"dim 2"});
  add_case("argmin", x, [](In t) { argmin(t[0], 2); }, {"dim 2"});
  add_case("argmin", empty, [](In t) { argmin(t[0]); }, {"[4, 0]"});
  add_case("argmin", empty, [](In t) { argmin(t[0], 1); }, {"dim 1 of [4, 0] is empty"});
  add_case("argsort", x, [](In t) { argsort(t[0], 2); }, {"dim 2"});
  add_case("topk", x, [](In t) { topk(t[0], 2, {.dim = 3}); }, {"dim 3"});
  add_case("norm", x, [](In t) { norm(t[0], std::nan("")); }, {"nan"});
  add_case("norm", empty, [](In t) { norm(t[0], -1.0, {1}); }, {"dim 1 of [4, 0] is empty", "-1"});
  add_case("vector_norm", x, [](In t) { vector_norm(t[0], 2.0, {2}); }, {"dim 2"});
  return add_case.list;
}

std::vector<Refusal> more_norm_refusals() {
  RefusalAdder add_case;
  const std::vector<Dims> x{{2, 6, 3}, {6}, {5}};
  add_case("batch_norm", x, [](In t) { batch_norm(t[0], {t[1], {}}); }, {"both", "neither"});
  add_case("batch_norm", x, [](In t) { batch_norm(t[0], {}); }, {"running statistics are needed"});
  add_case("batch_norm", x, [](In t) { batch_norm(t[0], {t[1], t[2]}); }, {"6 channels", "[5]"});
  add_case("batch_norm", {{1, 6}}, [](In t) { batch_norm(t[0], {}, {}, {}, {.training = true}); },
           {"[1, 6]"});
  add_case("instance_norm", x, [](In t) { instance_norm(t[0], {t[1], t[2]}); }, {"6 channels", "[5]"});
  add_case("instance_norm", {{2, 6}}, [](In t) { instance_norm(t[0]); }, {"[2, 6]"});
  add_case("group_norm", {{6}}, [](In t) { group_norm(t[0], 2); }, {"[6]"});
  add_case("group_norm", {{2, 6}}, [](In t) { group_norm(t[0], 0); }, {"0"});
  add_case("rms_norm", x, [](In t) { rms_norm(t[0], {3}, t[1]); }, {"[3]", "[6]"});
  add_case("add_layer_norm", x, [](In t) { add_layer_norm(t[0], t[0], {3}, {.weight = t[1]}); },
           {"[3]", "[6]"});
  add_case("layer_norm", x, [](In t) { layer_norm(t[0], {}); }, {"[]"});
  return add_case.list;
}

std::vector<Refusal> more_loss_refusals() {
  RefusalAdder add_case;
  const std::vector<Dims> pair{{4, 6}, {4, 6}};
  const std::vector<Dims> parted{{4, 6}, {3, 6}};
  add_case("smooth_l1_loss", parted, [](In t) { smooth_l1_loss(t[0], t[1]); }, {"[4, 6]", "[3, 6]"});
  add_case("smooth_l1_loss", pair, [](In t) { smooth_l1_loss(t[0], t[1], Reduction::Mean, -0.5); },
           {"-0.5", "at least 0"});
  add_case("huber_loss", parted, [](In t) { huber_loss(t[0], t[1]); }, {"[4, 6]", "[3, 6]"});
  add_case("huber_loss", pair, [](In t) { huber_loss(t[0], t[1], Reduction::Mean, 0.0); }, {"delta is 0"});
  add_case("mse_loss", pair, [](In t) { mse_loss(t[0], t[1], Reduction::BatchMean); }, {"kl_div alone"});
  for (const auto& target : {Dims{3, 6}, Dims{6}}) {
    add_case("binary_cross_entropy", {{4, 6}, target}, [](In t) { binary_cross_entropy(t[0], t[1]); },
             {"[4, 6]", target.str()});
    add_case("binary_cross_entropy_with_logits", {{4, 6}, target},
             [](In t) { binary_cross_entropy_with_logits(t[0], t[1]); }, {"[4, 6]", target.str()});
  }
  add_case("binary_cross_entropy", {{4, 6}, {4, 6}, {5}},
           [](In t) { binary_cross_entropy(t[0], t[1], t[2]); }, {"[5]", "[4, 6]"});
  add_case("binary_cross_entropy_with_logits", {{4, 6}, {4, 6}, {2, 4, 6}},
           [](In t) { binary_cross_entropy_with_logits(t[0], t[1], {}, Reduction::Mean, t[2]); },
           {"[2, 4, 6]", "[4, 6]"});
  add_case.list.push_back({"cross_entropy",
                           {{{4, 6}, DType::F32}, {{4}, kI64}, {{5}, DType::F32}},
                           [](In t) { cross_entropy(t[0], t[1], t[2]); },
                           {"6 classes", "[5]"}});
  add_case.list.push_back({"cross_entropy",
                           {{{4, 6}, DType::F32}, {{4}, kI64}},
                           [](In t) { cross_entropy(t[0], t[1], {}, {.label_smoothing = 1.5}); },
                           {"1.5", "0 to 1"}});
  add_case.list.push_back({"nll_loss",
                           {{{4, 6}, DType::F32}, {{4}, kI64}},
                           [](In t) { nll_loss(t[0], t[1], {}, {.label_smoothing = 0.5}); },
                           {"0.5", "cross_entropy"}});
  return add_case.list;
}

std::vector<Refusal> more_convolution_refusals() {
  RefusalAdder add_case;
  const std::vector<Dims> map{{1, 3, 7, 6}, {4, 3, 3, 3}};
  const std::vector<Dims> up{{1, 3, 7, 6}, {3, 4, 3, 3}};
  const std::vector<Dims> volume{{1, 3, 5, 6, 4}, {4, 3, 3, 3, 3}};
  const std::vector<Dims> up_volume{{1, 3, 5, 6, 4}, {3, 4, 3, 3, 3}};
  add_case("conv2d", map, [](In t) { conv2d(t[0], t[1], {}, {.padding = {-1}}); }, {"padding", "-1"});
  add_case("conv2d", map, [](In t) { conv2d(t[0], t[1], {}, {.dilation = {0}}); }, {"dilation", "0"});
  add_case("conv2d", map,
           [](In t) {
             conv2d(t[0], t[1], {}, {.stride = {1, 1, 1}});
           },
           {"stride", "[1, 1, 1]"});
  add_case("conv2d", map, [](In t) { conv2d(t[0], t[1], {}, {.groups = 0}); }, {"0"});
  add_case("conv3d", {{1, 3, 7, 6}, {4, 3, 3, 3}}, [](In t) { conv3d(t[0], t[1], {}); }, {"[4, 3, 3, 3]"});
  add_case("conv3d", {{1, 2, 5, 6, 4}, {4, 3, 3, 3, 3}}, [](In t) { conv3d(t[0], t[1], {}); },
           {"3 input channels", "[1, 2, 5, 6, 4]"});
  add_case("conv3d", volume, [](In t) { conv3d(t[0], t[1], {}, {.dilation = {3}}); }, {"7", "5"});
  add_case("conv3d", {{1, 3, 5, 6, 4}, {4, 3, 3, 3, 3}, {3}}, [](In t) { conv3d(t[0], t[1], t[2]); },
           {"4", "[3]"});
  for (const auto& [op, f] : std::vector<std::pair<const char*, decltype(&conv_transpose2d)>>{
           {"conv_transpose2d", &conv_transpose2d}, {"conv_transpose3d", &conv_transpose3d}}) {
    const bool flat = f == &conv_transpose2d;
    const auto& right = flat ? up : up_volume;
    add_case(op, flat ? up_volume : up, [f = f](In t) { f(t[0], t[1], {}, {}); },
             {(flat ? up_volume : up)[0].str()});
    add_case(op, {right[0], map[1].size() == right[1].size() ? map[1] : volume[1]},
             [f = f](In t) { f(t[0], t[1], {}, {}); }, {"4 input channels", right[0].str()});
    add_case(op, right, [f = f](In t) { f(t[0], t[1], {}, {.stride = {0}}); }, {"stride", "0"});
    add_case(op, right, [f = f](In t) { f(t[0], t[1], {}, {.output_padding = {1}}); },
             {"output_padding", "1"});
    add_case(op, right, [f = f](In t) { f(t[0], t[1], {}, {.padding = {9}}); }, {"positions"});
    add_case(op, right, [f = f](In t) { f(t[0], t[1], {}, {.groups = 2}); }, {"2"});
    add_case(op, {right[0], right[1], {3}}, [f = f](In t) { f(t[0], t[1], t[2], {}); }, {"4", "[3]"});
  }
  return add_case.list;
}

std::vector<Refusal> more_pool_refusals() {
  RefusalAdder add_case;
  const auto all_of = [&](const char* op, const auto& f, int spatial) {
    Dims right{2, 3, 8, 6, 4};
    while (right.size() > spatial + 2) right.erase(right.size() - 1);
    const Dims wrong = spatial == 3 ? Dims{8, 6, 4} : Dims{2, 3, 8, 6, 4};
    add_case(op, {wrong}, [f](In t) { f(t[0], {2}, {}); }, {wrong.str()});
    add_case(op, {right}, [f](In t) { f(t[0], {0}, {}); }, {"0"});
    add_case(op, {right}, [f](In t) { f(t[0], {9}, {}); }, {"9"});
    add_case(op, {right}, [f](In t) { f(t[0], {2, 2, 2, 2}, {}); }, {"[2, 2, 2, 2]"});
    add_case(op, {right}, [f](In t) { f(t[0], {2}, {.stride = {-1}}); }, {"stride", "-1"});
    add_case(op, {right}, [f](In t) { f(t[0], {2}, {.padding = {2}}); }, {"2"});
  };
  const auto three = [&](const char* const(&names)[3], const auto& one, const auto& two, const auto& volume) {
    all_of(names[0], one, 1);
    all_of(names[1], two, 2);
    all_of(names[2], volume, 3);
  };
  three({"max_pool1d", "max_pool2d", "max_pool3d"}, &max_pool1d, &max_pool2d, &max_pool3d);
  three({"avg_pool1d", "avg_pool2d", "avg_pool3d"}, &avg_pool1d, &avg_pool2d, &avg_pool3d);
  add_case("max_pool1d", {{2, 3, 8}}, [](In t) { max_pool1d(t[0], {2}, {.dilation = {0}}); },
           {"dilation", "0"});
  add_case("avg_pool3d", {{2, 3, 8, 6, 4}}, [](In t) { avg_pool3d(t[0], {2}, {.divisor_override = 0}); },
           {"0"});
  add_case("adaptive_avg_pool1d", {{2, 3, 8, 6}}, [](In t) { adaptive_avg_pool1d(t[0], {2}); },
           {"[2, 3, 8, 6]"});
  add_case("adaptive_avg_pool1d", {{2, 3, 8}}, [](In t) { adaptive_avg_pool1d(t[0], {-2}); }, {"-2"});
  add_case("adaptive_avg_pool3d", {{2, 3, 8}},
           [](In t) {
             adaptive_avg_pool3d(t[0], {2, 2, 2});
           },
           {"[2, 3, 8]"});
  add_case("adaptive_avg_pool3d", {{2, 3, 8, 6, 4}},
           [](In t) {
             adaptive_avg_pool3d(t[0], {2, 2});
           },
           {"[2, 2]"});
  return add_case.list;
}

std::vector<Refusal> more_shape_refusals() {
  RefusalAdder add_case;
  const std::vector<Dims> x{{4, 6}};
  add_case("broadcast_to", x, [](In t) { broadcast_to(t[0], {4, 7}); }, {"[4, 6]", "[4, 7]"});
  add_case("broadcast_to", x, [](In t) { broadcast_to(t[0], {6}); }, {"[4, 6]", "[6]"});
  add_case("chunk", x, [](In t) { chunk(t[0], 0); }, {"0"});
  add_case("chunk", x, [](In t) { chunk(t[0], 2, 2); }, {"dim 2"});
  add_case("unbind", x, [](In t) { unbind(t[0], 2); }, {"dim 2"});
  add_case("unbind", {{}}, [](In t) { unbind(t[0]); }, {"[]"});
  add_case("diagonal", x, [](In t) { diagonal(t[0], 0, 1, 1); }, {"1"});
  add_case("diagonal", {{6}}, [](In t) { diagonal(t[0]); }, {"two or more dims", "[6]"});
  add_case("flip", x, [](In t) { flip(t[0], {0, 0}); }, {"dim 0"});
  add_case("flip", x, [](In t) { flip(t[0], {2}); }, {"dim 2"});
  add_case("movedim", x, [](In t) { movedim(t[0], {0, 1}, {0}); }, {"[0, 1]", "[0]"});
  add_case("movedim", x, [](In t) { movedim(t[0], {0}, {2}); }, {"dim 2"});
  add_case("narrow", x, [](In t) { narrow(t[0], 0, 2, 3); }, {"3", "2", "size 4"});
  add_case("narrow", x, [](In t) { narrow(t[0], 0, 2, -1); }, {"-1"});
  add_case("select", x, [](In t) { select(t[0], 1, 6); }, {"6"});
  add_case("select", x, [](In t) { select(t[0], 2, 0); }, {"dim 2"});
  add_case("squeeze", x, [](In t) { squeeze(t[0], 2); }, {"dim 2"});
  add_case("squeeze", x, [](In t) { squeeze(t[0], Dims{0, 0}); }, {"dim 0"});
  add_case("repeat", x, [](In t) { repeat(t[0], {2}); }, {"[2]", "[4, 6]"});
  add_case("repeat", x, [](In t) { repeat(t[0], {2, -1}); }, {"-1"});
  add_case("tile", x, [](In t) { tile(t[0], {-2}); }, {"-2"});
  add_case("repeat_interleave", x, [](In t) { repeat_interleave(t[0], -1); }, {"-1"});
  add_case("repeat_interleave", x, [](In t) { repeat_interleave(t[0], 2, 2); }, {"dim 2"});
  add_case("split", x, [](In t) { split(t[0], 0, 1); }, {"0 elements", "dim 1 of size 6"});
  add_case("split", x, [](In t) { split(t[0], -2, 1); }, {"-2 elements", "dim 1 of size 6"});
  add_case("stack", {{4, 6}, {4, 6}}, [](In t) { stack(t, 3); }, {"dim 3"});
  add_case("roll", x, [](In t) { roll(t[0], {1}, {2}); }, {"dim 2"});
  return add_case.list;
}

std::vector<Refusal> more_index_refusals() {
  RefusalAdder add_case;
  auto& list = add_case.list;
  const std::vector<std::pair<Dims, DType>> parted{{{4, 6}, DType::F32}, {{2, 5}, kI64}};
  list.push_back({"take_along_dim", parted, [](In t) { take_along_dim(t[0], t[1], 0); }, {"6", "5"}});
  list.push_back({"take_along_dim", parted, [](In t) { take_along_dim(t[0], t[1], 2); }, {"dim 2"}});
  list.push_back({"take_along_dim",
                  {{{4, 6}, DType::F32}, {{2}, kI64}},
                  [](In t) { take_along_dim(t[0], t[1], 0); },
                  {"2 dims", "index 1"}});
  list.push_back({"one_hot", {{{4}, kI64}}, [](In t) { one_hot(t[0], -2); }, {"-2"}});
  list.push_back({"one_hot", {{{0}, kI64}}, [](In t) { one_hot(t[0]); }, {"[0]"}});
  list.push_back({"index_select",
                  {{{4, 6}, DType::F32}, {{2}, kI64}},
                  [](In t) { index_select(t[0], 2, t[1]); },
                  {"dim 2"}});
  list.push_back({"embedding",
                  {{{4, 6}, DType::F32}, {{2}, kI64}},
                  [](In t) { embedding(t[0], t[1], {.padding_idx = 4}); },
                  {"4"}});
  return list;
}

}  // namespace tessera::refusal_cases

using namespace tessera;
using namespace tessera::refusal_cases;

TEST_CASE("running statistics that are owed are not moved", "[ops]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const Tensor x(Array::full({2, 6, 3}, 1, DType::F32));
  const Tensor owed(Array::full({6}, 1, DType::F32), ShardSpec::make(mesh, {Partial()}, {6}));
  const std::vector<std::string> said{"sums that are owed", "Partial(sum)"};
  check_message(
      "batch_norm",
      [&] {
        batch_norm(x, {owed, owed}, {}, {}, {.training = true});
      },
      said);
  check_message(
      "instance_norm",
      [&] {
        instance_norm(x, {owed, owed});
      },
      said);
}

TEST_CASE("sizes and arguments that do not go with an operation are refused", "[ops]") {
  check_all(more_reduction_refusals(), 150);
  check_all(more_norm_refusals(), 156);
  check_all(more_loss_refusals(), 151);
  check_all(more_convolution_refusals(), 152);
  check_all(more_pool_refusals(), 153);
  check_all(more_shape_refusals(), 154);
  check_all(more_index_refusals(), 155);
}
