#include "verify/ops_table.h"

// One line an operation. Sizes are such that every dim has at least one element on each of 3 ranks.
namespace tessera::verify {
namespace {

TableFamily elementwise() {
  TableFamily f{"Element-wise", {}};
  for (const char* op : {"relu", "gelu", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs",
                         "neg", "square", "sin", "cos", "erf", "softplus", "reciprocal", "leaky_relu", "elu"})
    f.entries.push_back({op, "x 5 6"});
  f.entries.push_back({"clamp", "x 5 6", R"({"min":0.7,"max":1.2})"});
  f.entries.push_back({"pow_scalar", "x 5 6", R"({"exponent":3.0})"});
  f.entries.push_back({"clamp", "x 5 6; min 5 6; max 6", "{}", "x:P min:P, x:S0 min:S1"});
  for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum", "pow"})
    f.entries.push_back({op, "a 5 6; b 5 6", "{}", "a:P b:P, a:S0 b:S1"});
  f.entries.push_back({"where", "c 5 6 ?; a 5 6; b 5 6", "{}", "a:P b:P"});
  return f;
}

TableFamily products() {
  return {"Products",
          {{"matmul", "a 6 5; b 5 7", "{}", "a:S1 b:S0, a:S0 b:S1, a:S0 b:S0"},
           {"linear", "x 2 6 5; w 7 5; b 7", "{}", "x:S2 w:S1, x:S1 w:S0"},
           {"linear", "x 4 6 5; w 5; b", "{}", "x:S2 w:S0, x:S1 w:S0"},
           {"einsum", "a 4 6 5; b 5 7", R"({"equation":"bnc,cd->bnd"})", "a:S2 b:S0, a:S1 b:S1"},
           {"einsum", "a 3 6 5; b 3 6 7", R"({"equation":"bnc,bnd->cd"})", "a:S0 b:S0, a:S1 b:S1, a:S1 b:S0"},
           {"einsum", "x 6 4 6", R"({"equation":"iji->ij"})"}}};
}

TableFamily convolutions() {
  TableFamily f{"Convolutions", {}};
  const char* plain =
      R"({"stride":[1,1],"padding":[1,1],"dilation":[1,1],"groups":1,"padding_mode":"zeros"})";
  const char* strided =
      R"({"stride":[2,2],"padding":[1,1],"dilation":[1,1],"groups":1,"padding_mode":"zeros"})";
  const char* circular =
      R"({"stride":[1,1],"padding":[1,1],"dilation":[1,1],"groups":1,"padding_mode":"circular"})";
  const char* depthwise =
      R"({"stride":[1,1],"padding":[1,1],"dilation":[1,1],"groups":4,"padding_mode":"zeros"})";
  const char* reflect =
      R"({"stride":[1,1],"padding":[1,1],"dilation":[1,1],"groups":1,"padding_mode":"reflect"})";
  const char* replicate =
      R"({"stride":[1,1],"padding":[1,1],"dilation":[1,1],"groups":1,"padding_mode":"replicate"})";
  for (const char* args : {plain, strided, circular, reflect, replicate})
    f.entries.push_back({"conv2d", "x 3 4 12 9; w 6 4 3 3; b 6", args, "x:S1 w:S1, x:S2 w:S0"});
  f.entries.push_back({"conv2d", "x 3 4 12 9; w 4 1 3 3; b 4", depthwise});
  f.entries.push_back({"conv1d", "x 3 4 12; w 6 4 3; b 6",
                       R"({"stride":[1],"padding":[1],"dilation":[1],"groups":1,"padding_mode":"zeros"})"});
  f.entries.push_back(
      {"conv3d", "x 1 4 9 6 6; w 6 4 3 3 3; b 6",
       R"({"stride":[1,1,1],"padding":[1,1,1],"dilation":[1,1,1],"groups":1,"padding_mode":"zeros"})"});
  return f;
}

TableFamily transposed() {
  TableFamily f{"Transposed convolutions", {}};
  const char* up = R"({"stride":[2,2],"padding":[0,0],"output_padding":[0,0],"dilation":[1,1],"groups":1})";
  f.entries.push_back({"conv_transpose2d", "x 3 4 6 5; w 4 6 2 2; b 6", up});
  f.entries.push_back({"conv_transpose2d", "x 3 4 6 5; w 4 6 3 3; b 6", up});
  const char* up_depthwise =
      R"({"stride":[2,2],"padding":[1,1],"output_padding":[0,0],"dilation":[1,1],"groups":4})";
  f.entries.push_back({"conv_transpose2d", "x 3 4 12 12; w 4 1 4 4; b 4", up_depthwise});
  f.entries.push_back({"conv_transpose1d", "x 3 4 12; w 4 6 3; b 6",
                       R"({"stride":[2],"padding":[0],"output_padding":[0],"dilation":[1],"groups":1})"});
  f.entries.push_back(
      {"conv_transpose3d", "x 1 4 6 5 4; w 4 6 2 2 2; b 6",
       R"({"stride":[2,2,2],"padding":[0,0,0],"output_padding":[0,0,0],"dilation":[1,1,1],"groups":1})"});
  return f;
}

TableFamily windows() {
  TableFamily f{"Pooling and resizing", {}};
  f.entries.push_back({"max_pool1d", "x 3 4 12",
                       R"({"kernel_size":[3],"stride":[2],"padding":[1],"dilation":[1],"ceil_mode":false})"});
  f.entries.push_back(
      {"max_pool2d", "x 3 4 12 9",
       R"({"kernel_size":[3,3],"stride":[2,2],"padding":[1,1],"dilation":[1,1],"ceil_mode":false})"});
  f.entries.push_back(
      {"max_pool2d", "x 3 4 12 12",
       R"({"kernel_size":[2,2],"stride":[2,2],"padding":[0,0],"dilation":[1,1],"ceil_mode":false})"});
  f.entries.push_back(
      {"max_pool3d", "x 1 4 6 6 6",
       R"({"kernel_size":[3,3,3],"stride":[2,2,2],"padding":[1,1,1],"dilation":[1,1,1],"ceil_mode":false})"});
  f.entries.push_back(
      {"avg_pool1d", "x 3 4 12",
       R"({"kernel_size":[3],"stride":[2],"padding":[1],"ceil_mode":false,"count_include_pad":true})"});
  f.entries.push_back(
      {"avg_pool2d", "x 3 4 12 12",
       R"({"kernel_size":[2,2],"stride":[2,2],"padding":[0,0],"ceil_mode":false,"count_include_pad":true})"});
  f.entries.push_back(
      {"avg_pool3d", "x 1 4 6 6 6",
       R"({"kernel_size":[3,3,3],"stride":[2,2,2],"padding":[1,1,1],"ceil_mode":false,"count_include_pad":true})"});
  f.entries.push_back({"adaptive_avg_pool1d", "x 3 4 12", R"({"output_size":[5]})"});
  f.entries.push_back({"adaptive_avg_pool2d", "x 3 4 12 9", R"({"output_size":[1,1]})"});
  f.entries.push_back({"adaptive_avg_pool2d", "x 3 4 12 9", R"({"output_size":[5,4]})"});
  f.entries.push_back({"adaptive_avg_pool3d", "x 1 4 6 6 6", R"({"output_size":[4,2,1]})"});
  f.entries.push_back({"interpolate", "x 3 4 12", R"({"size":[24],"mode":"linear","align_corners":false})"});
  f.entries.push_back(
      {"interpolate", "x 1 4 6 6 6", R"({"size":[12,12,12],"mode":"trilinear","align_corners":false})"});
  f.entries.push_back(
      {"interpolate", "x 3 4 12 9", R"({"size":[24,18],"mode":"bilinear","align_corners":true})"});
  for (const char* args : {R"({"size":[24,18],"mode":"nearest","align_corners":null})",
                           R"({"size":[24,18],"mode":"bilinear","align_corners":false})",
                           R"({"size":[24,18],"mode":"bicubic","align_corners":false})"})
    f.entries.push_back({"interpolate", "x 3 4 12 9", args});
  return f;
}

TableFamily statistics() {
  TableFamily f{"Reductions, norms, softmax, losses", {}};
  for (const char* op : {"sum", "mean", "amax", "amin", "std", "var", "prod", "any", "all"})
    f.entries.push_back({op, "x 5 24 7", R"({"dim":[1],"keepdim":false})"});
  f.entries.push_back({"count_nonzero", "x 5 24 7", R"({"dim":[1]})"});
  f.entries.push_back({"sum", "x 5 24 7", R"({"dim":null,"keepdim":false})"});
  f.entries.push_back({"norm", "x 5 24 7", R"({"dim":[1],"keepdim":false,"p":2})"});
  f.entries.push_back({"norm", "x 5 24 7", R"({"dim":[1],"keepdim":false,"p":1})"});
  f.entries.push_back({"logsumexp", "x 5 24 7", R"({"dim":[1],"keepdim":false})"});
  for (const char* op : {"argmax", "argmin"})
    f.entries.push_back({op, "x 5 24 7", R"({"dim":1,"keepdim":false})"});
  f.entries.push_back({"cumsum", "x 5 24 7", R"({"dim":1})"});
  f.entries.push_back({"softmax", "x 5 24 7", R"({"dim":1})"});
  f.entries.push_back({"log_softmax", "x 5 24 7", R"({"dim":1})"});
  f.entries.push_back(
      {"add_layer_norm", "x 5 6 24; residual 5 6 24; w 24; b 24", R"({"normalized_shape":[24],"eps":1e-5})"});
  f.entries.push_back({"layer_norm", "x 5 6 24; w 24; b 24", R"({"normalized_shape":[24],"eps":1e-5})"});
  f.entries.push_back({"rms_norm", "x 5 6 24; w 24", R"({"normalized_shape":[24],"eps":1e-5})"});
  f.entries.push_back({"group_norm", "x 3 6 9 8; w 6; b 6", R"({"num_groups":3,"eps":1e-5})"});
  f.entries.push_back({"batch_norm", "x 3 6 9 8; w 6; b 6", R"({"eps":1e-5})"});
  f.entries.push_back({"batch_norm", "x 3 6 9 8; w 6; b 6; m 6; v 6", R"({"training":false,"eps":1e-5})"});
  f.entries.push_back({"instance_norm", "x 3 6 9 8; w 6; b 6", R"({"eps":1e-5})"});
  for (const char* op : {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
                         "binary_cross_entropy_with_logits", "kl_div"})
    f.entries.push_back({op, "x 5 6; y 5 6", R"({"reduction":"mean"})", "x:S0 y:S1"});
  for (const char* op : {"cross_entropy", "nll_loss"})
    f.entries.push_back({op, "x 5 60 6; y 5 6 <60", R"({"reduction":"mean"})", "x:S0 y:S0, x:S2 y:S1"});
  for (const char* reduction : {R"({"reduction":"sum"})", R"({"reduction":"none"})"})
    f.entries.push_back({"cross_entropy", "x 5 60 6; y 5 6 <60", reduction, "x:S0 y:S0, x:S2 y:S1"});
  f.entries.push_back(
      {"cross_entropy", "x 5 60 6; y 5 6 <60", R"({"reduction":"mean","label_smoothing":0.1})"});
  return f;
}

TableFamily attention() {
  const char* op = "scaled_dot_product_attention";
  const char* all = R"({"is_causal":false,"scale":null,"enable_gqa":false})";
  const char* causal = R"({"is_causal":true,"scale":null,"enable_gqa":false})";
  const char* grouped = R"({"is_causal":false,"scale":null,"enable_gqa":true})";
  return {"Attention",
          {{op, "q 3 4 9 8; k 3 4 9 8; v 3 4 9 8", all, "k:S2 v:S2"},
           {op, "q 3 4 9 8; k 3 4 9 8; v 3 4 9 8", causal, "k:S2 v:S2"},
           {op, "q 3 6 9 8; k 3 3 9 8; v 3 3 9 8", grouped,
            "q:S0 k:S0 v:S0, q:S1 k:S1 v:S1, q:S2 k:S2 v:S2, q:S3 k:S3 v:S3"},
           {op, "q 3 4 9 8; k 3 4 9 8; v 3 4 9 8; m 3 4 9 9 ?", all,
            "q:S2 m:S2, q:S2 k:S2 v:S2, q:S2 k:S2 v:S2 m:S2, q:S0 k:S0 v:S0 m:S0"},
           {op, "q 3 4 9 8; k 3 4 9 8; v 3 4 9 8; m 9 9", all, "q:S2 m:S0, q:S2 k:S2 v:S2 m:S0"}}};
}

TableFamily shapes() {
  return {
      "Shape",
      {{"reshape", "x 4 6 5", R"({"shape":[24,5]})"},
       {"reshape", "x 24 5", R"({"shape":[4,6,5]})"},
       {"reshape", "x 6 35", R"({"shape":[10,21]})"},
       {"flatten", "x 3 4 6 5", R"({"start_dim":2,"end_dim":3})"},
       {"unflatten", "x 12 5", R"({"dim":0,"sizes":[3,4]})"},
       {"permute", "x 4 6 5", R"({"dims":[2,0,1]})"},
       {"transpose", "x 4 6 5", R"({"dim0":0,"dim1":2})"},
       {"unsqueeze", "x 4 6", R"({"dim":1})"},
       {"squeeze", "x 4 1 6", R"({"dim":1})"},
       {"expand", "x 4 1 6", R"({"sizes":[4,3,6]})"},
       {"broadcast_to", "x 4 6", R"({"size":[3,4,6]})"},
       {"movedim", "x 4 6 5", R"({"source":[0],"destination":[2]})"},
       {"narrow", "x 9 5", R"({"dim":0,"start":2,"length":5})"},
       {"select", "x 9 5", R"({"dim":0,"index":4})"},
       {"chunk", "x 9 5", R"({"chunks":4,"dim":0})"},
       {"unbind", "x 9 5", R"({"dim":0})"},
       {"diagonal", "x 3 6 7", R"({"offset":1,"dim1":1,"dim2":2})"},
       {"flip", "x 4 6 5", R"({"dims":[1]})"},
       {"roll", "x 4 6 5", R"({"shifts":[2],"dims":[1]})"},
       {"repeat", "x 4 6", R"({"repeats":[2,3]})"},
       {"tile", "x 4 6", R"({"dims":[3]})"},
       {"repeat_interleave", "x 4 6", R"({"repeats":3,"dim":0})"},
       {"cat", "a 4 6; b 4 6", R"({"dim":0})", "a:P b:P"},
       {"stack", "a 4 6; b 4 6", R"({"dim":0})"},
       {"split", "x 6 5", R"({"sizes":[2,4],"dim":0})"},
       {"slice", "x 9 5", R"({"dim":0,"start":1,"end":8,"step":2})"},
       {"slice_scatter", "x 9 5; s 4 5", R"({"dim":0,"start":1,"end":8,"step":2})", "x:S0 s:S0, x:S1 s:S1"},
       {"select_scatter", "x 9 5; s 5", R"({"dim":0,"index":4})", "x:S0 s:S0, x:S1 s:S0"},
       {"pad", "x 3 4 9 6", R"({"pad":[1,2,1,1],"mode":"constant","value":0.5})"},
       {"pad", "x 3 4 9 6", R"({"pad":[1,2,1,1],"mode":"circular","value":0})"},
       {"pad", "x 3 4 9 6", R"({"pad":[1,2,3,1],"mode":"reflect","value":0})"},
       {"pad", "x 3 4 9 6", R"({"pad":[1,2,3,1],"mode":"replicate","value":0})"}}};
}

TableFamily indexing() {
  return {
      "Indexing and order",
      {{"index_select", "x 60 6; i 5 <60", R"({"dim":0})", "x:S0 i:S0"},
       {"gather", "x 60 6; i 5 6 <60", R"({"dim":0})", "x:S0 i:S0, x:S1 i:S1"},
       {"gather", "x 12 6; i 50 6 <12", R"({"dim":0})", "x:S0 i:S0, x:S1 i:S1"},
       {"scatter_add", "x 60 6; i 5 6 <60; s 5 6", R"({"dim":0})", "i:S0 s:S0, i:S1 s:S1, x:S0 i:S0 s:S0"},
       {"embedding", "t 60 6; i 4 5 <60", "{}", "t:S0 i:S0"},
       {"embedding", "t 12 6; i 20 5 <4", "{}", "t:S0 i:S0"},
       {"take_along_dim", "x 60 6; i 5 6 <60", R"({"dim":0})"},
       {"one_hot", "i 5 6 <7", R"({"num_classes":7})"},
       {"masked_fill", "x 5 6; m 5 6 ?", R"({"value":0.5})"},
       {"sort", "x 12 6", R"({"dim":0,"descending":false})"},
       {"argsort", "x 12 6", R"({"dim":0,"descending":false})"},
       {"sort", "x 960", R"({"dim":0,"descending":false})"},
       {"median", "x 240 6", R"({"dim":0,"keepdim":false})"},
       {"median", "x 240 6", R"({"dim":null})"},
       {"topk", "x 12 6", R"({"k":3,"dim":0})"},
       {"topk", "x 300 6", R"({"k":2,"dim":0})"}}};
}

TableFamily clouds() {
  return {"Point clouds",
          {{"knn", "p 3000 2; q 30 2", R"({"k":4})", "p:S0 q:S0"},
           {"radius_search", "p 3000 2; q 30 2", R"({"radius":0.001,"max_neighbors":4})", "p:S0 q:S0"},
           {"radius_search", "p 3000 2; q 30 2", R"({"radius":0.001})", "p:S0 q:S0"}}};
}

}  // namespace

const std::vector<TableFamily>& table_families() {
  static const std::vector<TableFamily> list{elementwise(), products(),   convolutions(), transposed(),
                                             windows(),     statistics(), attention(),    shapes(),
                                             indexing(),    clouds()};
  return list;
}

}  // namespace tessera::verify
