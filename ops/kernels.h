// The kernels that operations call, one row of function pointers each (see runtime/kernel.h). Argument
// structs are those of the CPU library; another backend fills its column with functions of the same
// signature.
#pragma once
#include "ops/cpu/adamw.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/conv.h"
#include "ops/cpu/matmul.h"
#include "ops/cpu/norm.h"
#include "ops/cpu/pointwise.h"
#include "ops/cpu/reduce.h"
#include "ops/cpu/softmax.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::UnaryArgs&)> unary;
extern Kernel<void(const cpu::BinaryArgs&)> binary;
extern Kernel<void(const cpu::WhereArgs&)> where;
extern Kernel<void(const cpu::ReduceArgs&)> reduce;
extern Kernel<void(const cpu::MomentsArgs&)> moments;
extern Kernel<void(const cpu::SoftmaxArgs&)> softmax;
extern Kernel<void(const cpu::SoftmaxBackwardArgs&)> softmax_backward;
extern Kernel<void(const cpu::LayerNormArgs&)> layer_norm;
extern Kernel<void(const cpu::LayerNormBackwardArgs&)> layer_norm_backward;
extern Kernel<void(const cpu::MatmulArgs&)> matmul;
extern Kernel<void(const cpu::ConvArgs&)> conv_forward;
extern Kernel<void(const cpu::ConvBackwardDataArgs&)> conv_backward_data;
extern Kernel<void(const cpu::ConvBackwardWeightArgs&)> conv_backward_weight;
extern Kernel<void(const Array&, const Array&, const Array&)> attention_init;
extern Kernel<void(const cpu::AttentionArgs&)> attention_accumulate;
extern Kernel<void(const cpu::AttentionFinishArgs&)> attention_finish;
extern Kernel<void(const cpu::AttentionForwardArgs&)> attention_forward;
extern Kernel<void(const cpu::AttentionBackwardArgs&)> attention_backward;

}  // namespace tessera::kernels
