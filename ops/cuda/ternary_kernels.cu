#include "ops/cuda/ternary_kernels.h"

#include <type_traits>
#include <utility>

#ifndef TESSERA_ISA_NAMESPACE
#define TESSERA_ISA_NAMESPACE isa_cuda
#endif
#include "ops/cpu/simd/ternary_functions.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

namespace math = cpu::isa_cuda;
using cpu::TernaryOp;

// f(constant) for the op with that number: the choice is the same for all threads of a kernel.
template <std::size_t... I, class F>
TS_DEVICE void choose(TernaryOp op, std::index_sequence<I...>, const F& f) {
  (void)((static_cast<std::size_t>(op) == I &&
          (f(std::integral_constant<TernaryOp, static_cast<TernaryOp>(I)>{}), true)) ||
         ...);
}

template <class T>
struct Ternary : Independent {
  Walk<4> walk;
  Ptr<T> out;
  Ptr<const T> a;
  Ptr<const T> b;
  Ptr<const T> c;
  Wide<T> none;
  TernaryOp op;
  Wide<T> alpha;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[4];
    walk.offsets(i, at);
    const W x = load(a[at[1]]);
    const W y = load(b[at[2]]);
    const W z = c ? static_cast<W>(load(c[at[3]])) : none;
    W result = 0;
    choose(op, std::make_index_sequence<static_cast<std::size_t>(TernaryOp::kCount)>{},
           [&](auto constant) { result = math::ternary_element<decltype(constant)::value>(x, y, z, alpha); });
    out[at[0]] = convert<T>(result);
  }
};

}  // namespace

void ternary_elements(const TernaryElements& e, StreamHandle stream) {
  dispatch_floating(e.out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(Ternary<T>{{},
                      e.walk,
                      static_cast<T*>(e.out.data),
                      static_cast<const T*>(e.a.data),
                      static_cast<const T*>(e.b.data),
                      static_cast<const T*>(e.c.data),
                      static_cast<Wide<T>>(e.none),
                      e.op,
                      static_cast<Wide<T>>(e.alpha)},
           one_each(e.walk.numel), stream);
  });
}

}  // namespace tessera::cuda
