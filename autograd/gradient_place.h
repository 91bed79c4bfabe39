// Where gradients lie before a node sees them. Internal to the engine.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

// The gradient `g` of a result of spec `own` (null: plain), cut as that is: once for all who read it, and
// before anything larger has to move. Where the result is not cut, a sum that is owed stays owed; a gradient
// that is cut there, or that lies on another mesh, is left alone. Collective where it moves.
Tensor placed_as(const Tensor& g, const SpecPtr& own);

// The gradients of one node's results. Those of a plain operation may come from tensors of several meshes,
// which no operation takes together: they follow the first that is sharded, whole on every rank. Collective
// where one moves; refuses meshes of other ranks.
void put_on_one_mesh(Tensors& gradients);

// What a hook gave for `gradient`. Refuses other sizes and another dtype in the name of `op`, which made the
// tensor.
Tensor in_place_of(const Tensor& gradient, const Tensor& given, const char* op);

}  // namespace tessera
