#include "nn/optimizer.h"

#include <charconv>
#include <cmath>
#include <unordered_set>

#include "runtime/copy.h"
#include "runtime/error.h"
#include "runtime/graph_capture.h"

namespace tessera::optim {
namespace {

const std::string kStepEntry = "step";

bool is_embedding(const std::string& full_name) {
  const std::size_t dot = full_name.rfind('.');
  const std::string own = dot == std::string::npos ? full_name : full_name.substr(dot + 1);
  return own.find("embed") != std::string::npos || own.rfind("pos", 0) == 0;
}

// The gradient in its parameter's dtype and memory order, which kernels need to run over both as flat arrays.
Array in_layout_of(const Array& grad, const Array& param) {
  const bool alike = grad.strides() == param.strides() || (grad.is_contiguous() && param.is_contiguous());
  if (alike && grad.dtype() == param.dtype()) return grad;
  Array copy = Array::empty_strided(param.sizes(), param.strides(), param.dtype(), param.device());
  copy_strided(copy, grad);
  return copy;
}

// As arguments of kernels, which need no memory of the host until they run.
void write_scalars(const Array& scalars, double lr, std::int64_t step) {
  scalars.slice(0, 0, 1).fill_(lr);
  scalars.slice(0, 1, 1).fill_(static_cast<double>(step));
  scalars.slice(0, 2, 1).fill_(1.0);
}

}  // namespace

std::vector<ParamGroup> decay_groups(const nn::Module& module, double weight_decay) {
  ParamGroup decay;
  ParamGroup no_decay;
  decay.weight_decay = weight_decay;
  no_decay.weight_decay = 0.0;
  for (const nn::NamedTensor& n : module.named_parameters())
    (n.tensor.dim() <= 1 || is_embedding(n.name) ? no_decay : decay).params.push_back(n.tensor);
  return {decay, no_decay};
}

void Optimizer::Batch::clear() {
  params.clear();
  grads.clear();
  slots.clear();
  for (std::vector<Array>& b : buffers) b.clear();
}

Optimizer::Optimizer(const char* op, std::vector<ParamGroup> groups, double lr,
                     std::vector<std::string> buffer_names)
    : op_(op), groups_(std::move(groups)), lr_(0), buffer_names_(std::move(buffer_names)) {
  set_lr(lr);
  batch_.buffers.resize(buffer_names_.size());
  std::unordered_set<const TensorImpl*> seen;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    TS_CHECK(!groups_[g].weight_decay || *groups_[g].weight_decay >= 0, op_,
             "weight decay {} of group {}; it must not be negative", *groups_[g].weight_decay, g);
    for (const Tensor& p : groups_[g].params) {
      TS_CHECK(p.defined() && p.requires_grad() && p.is_leaf(), op_,
               "parameter {} is not a leaf that requires a gradient", slots_.size());
      TS_CHECK(!p.is_sharded() || !p.spec()->has_partial(), op_,
               "parameter {} is a sum that the ranks owe each other, {}, of which every rank would step its "
               "own term; redistribute it first",
               slots_.size(), p.spec()->str());
      TS_CHECK(seen.insert(p.impl().get()).second, op_, "parameter {}, of sizes {}, is given twice",
               slots_.size(), p.sizes().str());
      slots_.push_back({p, g, 0, {}, false});
    }
  }
  TS_CHECK(!slots_.empty(), op_, "no parameters were given");
  self_ = std::make_shared<Optimizer*>(this);
}

void Optimizer::set_lr(double lr) {
  TS_CHECK(std::isfinite(lr) && lr >= 0, op_, "learning rate {}; it must be finite and not negative", lr);
  lr_ = lr;
}

void Optimizer::zero_grad() const {
  for (const Slot& s : slots_) s.param.zero_grad();
}

void Optimizer::make_buffers(Slot& slot) const {
  if (!slot.buffers.empty() || buffer_names_.empty()) return;
  refuse_in_capture(op_, "the state of a parameter is made, in its first step,",
                    "make one step before the capture");
  const Array& p = slot.param.local();
  for (std::size_t b = 0; b < buffer_names_.size(); ++b) {
    slot.buffers.push_back(Array::empty_strided(p.sizes(), p.strides(), p.dtype(), p.device()));
    fill(slot.buffers.back(), 0.0);
  }
}

void Optimizer::add_to_batch(std::size_t index) {
  Slot& slot = slots_[index];
  const Array& p = slot.param.local();
  make_buffers(slot);
  batch_.params.push_back(p);
  batch_.grads.push_back(in_layout_of(slot.param.grad().local(), p));
  for (std::size_t b = 0; b < slot.buffers.size(); ++b) batch_.buffers[b].push_back(slot.buffers[b]);
  batch_.slots.push_back(index);
  ++slot.steps;
  slot.waiting = false;
}

void Optimizer::step() { step_scaled({}); }

GradNorm Optimizer::step_clipped(double max_norm) {
  Tensors params;
  for (const Slot& s : slots_)
    if (s.param.requires_grad()) params.push_back(s.param);
  const ClipFactor clip = clip_factor("step_clipped", params, max_norm);
  step_scaled(clip.factor);
  return clip.norm;
}

// The numbers that differ from step to step go to the device, or beside it to the kernel's arguments.
void Optimizer::set_scalars(std::size_t batch, Device device, const Array& grad_scale) {
  batch_.scalars = Array();
  if (device == Device::Cpu || device == Device::Meta) {
    batch_.grad_scale = grad_scale.defined() && device == Device::Cpu ? grad_scale.at(0) : 1.0;
    return;
  }
  if (GraphCapture* graph = GraphCapture::current()) return set_captured_scalars(*graph, grad_scale);
  if (batch == scalars_.size()) scalars_.push_back(Array::empty({3}, DType::F64, device));
  Array& scalars = scalars_[batch];
  if (scalars.device() != device) scalars = Array::empty({3}, DType::F64, device);
  write_scalars(scalars, batch_.lr, batch_.step);
  if (grad_scale.defined()) scalars.slice(0, 2, 1).copy_(grad_scale);
  batch_.scalars = scalars;
}

// In memory of the graph's own: two captured steps differ.
void Optimizer::set_captured_scalars(GraphCapture& graph, const Array& grad_scale) {
  batch_.scalars = graph.input({3}, DType::F64);
  if (grad_scale.defined()) batch_.scalars.slice(0, 2, 1).copy_(grad_scale);
  // The captured call was no step.
  graph.when_ended([self = std::weak_ptr(self_), slots = batch_.slots] {
    if (const auto alive = self.lock())
      for (const std::size_t i : slots) --(*alive)->slots_[i].steps;
  });
  graph.check_replay([op = op_, self = std::weak_ptr(self_), slots = batch_.slots] {
    const auto alive = self.lock();
    TS_CHECK(alive, op, "a graph that this optimizer's step was captured in is replayed, but it is gone");
    (*alive)->check_replay(slots);
  });
  graph.before_replay([self = std::weak_ptr(self_), slots = batch_.slots, scalars = batch_.scalars] {
    if (const auto alive = self.lock()) (*alive)->replay_step(slots, scalars);
  });
}

void Optimizer::check_replay(const std::vector<std::size_t>& slots) const {
  const Slot& first = slots_[slots.front()];
  for (const std::size_t i : slots) {
    TS_CHECK(slots_[i].steps == first.steps, op_,
             "parameters {} and {} made one number of steps when the graph was captured, now {} and {}",
             slots.front(), i, first.steps, slots_[i].steps);
  }
}

void Optimizer::replay_step(const std::vector<std::size_t>& slots, const Array& scalars) {
  const Slot& first = slots_[slots.front()];
  for (const std::size_t i : slots) {
    ++slots_[i].steps;
    slots_[i].param.local().bump_version();
  }
  const double lr = lr_ * groups_[first.group].lr_scale;
  write_scalars(scalars, lr, first.steps);
}

void Optimizer::step_scaled(const Array& grad_scale) {
  const NoGrad guard;
  std::size_t batches = 0;
  // All gradients first, in order: on every rank the same sums, wherever they are still owed.
  for (Slot& s : slots_) s.waiting = s.param.requires_grad() && s.param.grad().defined();
  for (std::size_t first = 0; first < slots_.size(); ++first) {
    if (!slots_[first].waiting) continue;
    const std::size_t group = slots_[first].group;
    const std::int64_t steps = slots_[first].steps;
    const Device device = slots_[first].param.device();
    batch_.clear();
    for (std::size_t i = first; i < slots_.size(); ++i) {
      const Slot& s = slots_[i];
      if (s.waiting && s.group == group && s.steps == steps && s.param.device() == device) add_to_batch(i);
    }
    batch_.lr = lr_ * groups_[group].lr_scale;
    batch_.weight_decay = groups_[group].weight_decay;
    batch_.step = steps + 1;
    set_scalars(batches++, device, grad_scale);
    update(device, batch_);
    for (const Array& p : batch_.params) p.bump_version();
  }
  batch_.clear();
}

std::vector<StateEntry> Optimizer::state() const {
  std::vector<StateEntry> entries;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& s = slots_[i];
    if (s.steps == 0) continue;
    entries.push_back(
        {fmt::format("{}.{}", i, kStepEntry), Array::full({}, static_cast<double>(s.steps), DType::I64)});
    for (std::size_t b = 0; b < s.buffers.size(); ++b)
      entries.push_back({fmt::format("{}.{}", i, buffer_names_[b]), s.buffers[b]});
  }
  return entries;
}

// {slot, buffer}; the step counter comes after the buffers.
std::pair<std::size_t, std::size_t> Optimizer::find_entry(const StateEntry& entry) const {
  const std::size_t dot = entry.name.find('.');
  std::size_t slot = slots_.size();
  std::size_t buffer = buffer_names_.size() + 1;
  if (dot != std::string::npos) {
    std::from_chars(entry.name.data(), entry.name.data() + dot, slot);
    const std::string own = entry.name.substr(dot + 1);
    for (std::size_t b = 0; b < buffer_names_.size(); ++b)
      if (own == buffer_names_[b]) buffer = b;
    if (own == kStepEntry) buffer = buffer_names_.size();
  }
  TS_CHECK(slot < slots_.size() && buffer <= buffer_names_.size(), op_,
           "state '{}' is unknown; there are {} parameters, and names like '0.{}'", entry.name, slots_.size(),
           buffer_names_.empty() ? kStepEntry : buffer_names_.front());
  const Dims expected = buffer == buffer_names_.size() ? Dims{} : slots_[slot].param.local().sizes();
  TS_CHECK(entry.value.defined() && entry.value.sizes() == expected, op_, "state '{}' has sizes {}, not {}",
           entry.name, expected.str(), entry.value.defined() ? entry.value.sizes().str() : "none");
  return {slot, buffer};
}

void Optimizer::load_state(const std::vector<StateEntry>& entries) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  places.reserve(entries.size());
  for (const StateEntry& e : entries) places.push_back(find_entry(e));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Slot& slot = slots_[places[i].first];
    make_buffers(slot);
    if (places[i].second == buffer_names_.size()) {
      slot.steps = static_cast<std::int64_t>(entries[i].value.at(0));
    } else {
      slot.buffers[places[i].second].copy_(entries[i].value);
    }
  }
}

}  // namespace tessera::optim
