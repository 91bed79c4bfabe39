#include "ops/kernels.h"

#include "ops/elementwise/ternary_kernel.h"

namespace tessera::kernels {

Kernel<void(const cpu::UnaryArgs&)> unary{"unary", &cpu::unary};
Kernel<void(const cpu::BinaryArgs&)> binary{"binary", &cpu::binary};
Kernel<void(const cpu::WhereArgs&)> where{"where", &cpu::where};
Kernel<void(const cpu::TernaryArgs&)> ternary{"ternary", &cpu::ternary};
Kernel<void(const cpu::ReduceArgs&)> reduce{"reduce", &cpu::reduce};
Kernel<void(const cpu::MomentsArgs&)> moments{"moments", &cpu::moments};
Kernel<void(const cpu::SoftmaxArgs&)> softmax{"softmax", &cpu::softmax};
Kernel<void(const cpu::SoftmaxBackwardArgs&)> softmax_backward{"softmax_backward", &cpu::softmax_backward};
Kernel<void(const cpu::LayerNormArgs&)> layer_norm{"layer_norm", &cpu::layer_norm};
Kernel<void(const cpu::LayerNormBackwardArgs&)> layer_norm_backward{"layer_norm_backward",
                                                                    &cpu::layer_norm_backward};
Kernel<void(const cpu::MatmulArgs&)> matmul{"matmul", &cpu::matmul};
Kernel<void(const cpu::ConvArgs&)> conv_forward{"conv_forward", &cpu::conv_forward};
Kernel<void(const cpu::ConvBackwardDataArgs&)> conv_backward_data{"conv_backward_data",
                                                                  &cpu::conv_backward_data};
Kernel<void(const cpu::ConvBackwardWeightArgs&)> conv_backward_weight{"conv_backward_weight",
                                                                      &cpu::conv_backward_weight};
Kernel<void(const Array&, const Array&, const Array&)> attention_init{"attention_init", &cpu::attention_init};
Kernel<void(const cpu::AttentionArgs&)> attention_accumulate{"attention_accumulate",
                                                             &cpu::attention_accumulate};
Kernel<void(const cpu::AttentionFinishArgs&)> attention_finish{"attention_finish", &cpu::attention_finish};
Kernel<void(const cpu::AttentionForwardArgs&)> attention_forward{"attention_forward",
                                                                 &cpu::attention_forward};
Kernel<void(const cpu::AttentionBackwardArgs&)> attention_backward{"attention_backward",
                                                                   &cpu::attention_backward};

}  // namespace tessera::kernels
