#include "train/data_parallel.h"

#include <algorithm>

#include "autograd/node.h"
#include "nn/batch_norm.h"
#include "runtime/error.h"
#include "train/gradient_term.h"
#include "train/sync.h"

namespace tessera::train {
namespace {

constexpr const char* kOp = "DataParallel";

struct Slot {
  std::string name;
  Tensor param;
  std::size_t bucket = 0;
  std::int64_t flag = 0;  // position of the parameter's "there is a gradient" element
  Tensor view;            // the reduced gradient: memory of the bucket
  bool ready = false;     // in this pass
  bool here = false;      // this rank has a gradient
};

struct Bucket {
  Array storage;  // gradients one after another, then one flag per parameter
  std::vector<std::size_t> slots;
  std::size_t ready = 0;
  bool started = false;
  Work work;
};

}  // namespace

class DataParallel::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(nn::Module& module, const DeviceMesh& mesh, const DataParallelOptions& options)
      : mesh_(mesh), ddp_axis_(mesh.has_axis(options.ddp_axis) ? mesh.axis(options.ddp_axis) : -1) {
    TS_CHECK(options.bucket_bytes >= 0 && options.first_bucket_bytes > 0, kOp,
             "bucket sizes {} and {} bytes; the first must be at least 0, the second positive",
             options.bucket_bytes, options.first_bucket_bytes);
    check_same_state(module, mesh);
    for (const nn::NamedTensor& n : module.named_parameters()) {
      if (!n.tensor.requires_grad()) continue;
      TS_CHECK(!leaf_state(n.tensor).accumulated, kOp, "'{}' belongs to another DataParallel already",
               n.name);
      Slot slot;
      slot.name = n.name;
      slot.param = n.tensor;
      slots_.push_back(std::move(slot));
    }
    fill_buckets(options);
    if (ddp_axis_ < 0 || mesh.size(ddp_axis_) == 1 || !options.shared_batch_statistics) return;
    for (const auto& [name, part] : module.named_modules())
      if (auto* norm = dynamic_cast<nn::RunningNorm*>(part)) norms_.push_back(norm);
  }

  void attach() {
    for (nn::RunningNorm* norm : norms_) norm->share_batch({mesh_, ddp_axis_});
    for (std::size_t i = 0; i < slots_.size(); ++i)
      leaf_state(slots_[i].param).accumulated = [this, i](const Tensor&) { arrived(i); };
  }
  // Waits for nothing: a Work that is dropped completes by itself.
  void detach() {
    for (nn::RunningNorm* norm : norms_) norm->share_batch({});
    for (Slot& s : slots_) leaf_state(s.param).accumulated = nullptr;
  }

  void reduce() {
    TS_CHECK(!in_pass_, kOp, "reduce() was called inside a backward pass");
    start_pass();
    end_pass();
  }

  const std::vector<Bucket>& buckets() const { return buckets_; }
  bool sync = true;

 private:
  std::int64_t bucket_limit(const DataParallelOptions& options) const {
    if (options.bucket_bytes > 0) return options.bucket_bytes;
    constexpr std::int64_t kLeast = std::int64_t{64} << 10U;
    constexpr std::int64_t kMost = std::int64_t{25} << 20U;
    std::int64_t all = 0;
    for (const Slot& s : slots_) all += s.param.numel() * size_of(s.param.dtype());
    return std::clamp(all / 8, kLeast, kMost);
  }

  // Backward meets the last layers first, so buckets are filled from the end.
  void fill_buckets(const DataParallelOptions& options) {
    const std::int64_t later = bucket_limit(options);
    const std::int64_t first = std::min(options.first_bucket_bytes, later);
    std::vector<std::int64_t> sizes;
    std::vector<DType> dtypes;
    for (std::size_t i = slots_.size(); i-- > 0;) {
      const Tensor& p = slots_[i].param;
      const std::int64_t limit = buckets_.size() <= 1 ? first : later;
      if (buckets_.empty() || dtypes.back() != p.dtype() ||
          (sizes.back() + p.numel()) * size_of(p.dtype()) > limit) {
        buckets_.emplace_back();
        sizes.push_back(0);
        dtypes.push_back(p.dtype());
      }
      slots_[i].bucket = buckets_.size() - 1;
      buckets_.back().slots.push_back(i);
      sizes.back() += p.numel();
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) make_storage(buckets_[b], sizes[b], dtypes[b]);
  }

  void make_storage(Bucket& bucket, std::int64_t gradients, DType dtype) {
    const auto flags = static_cast<std::int64_t>(bucket.slots.size());
    bucket.storage = Array::zeros({gradients + flags}, dtype, slots_[bucket.slots.front()].param.device());
    std::int64_t at = 0;
    std::int64_t flag = gradients;
    for (std::size_t i : bucket.slots) {
      const Array& p = slots_[i].param.local();
      // In the memory order of the parameter, so that optimizers run over both as they lie.
      const Dims strides = p.is_dense() ? p.strides() : contiguous_strides(p.sizes());
      slots_[i].view = Tensor(bucket.storage.as_strided(p.sizes(), strides, at));
      slots_[i].flag = flag++;
      at += p.numel();
    }
  }

  void start_pass() {
    in_pass_ = true;
    next_ = 0;
    for (Slot& s : slots_) s.ready = false;
    for (Bucket& b : buckets_) {
      b.ready = 0;
      b.started = false;
    }
  }

  // A leaf has its gradient of this pass.
  void arrived(std::size_t i) {
    if (!sync) return;
    if (!in_pass_) {
      start_pass();
      at_backward_end([self = weak_from_this()](bool completed) {
        if (const auto impl = self.lock()) completed ? impl->end_pass() : impl->abandon_pass();
      });
    }
    add_term(i);
    start_full_buckets();
  }

  void add_term(std::size_t i) {
    Slot& slot = slots_[i];
    Bucket& bucket = buckets_[slot.bucket];
    TS_CHECK(!bucket.started, kOp,
             "a second gradient of '{}' arrived in one backward pass after its bucket had left", slot.name);
    const Tensor& grad = pending_grad(slot.param);
    write_gradient_term({mesh_, ddp_axis_}, grad, slot.view.local(), slot.name.c_str());
    slot.here = grad.defined();
    bucket.storage.slice(0, slot.flag, 1).fill_(slot.here ? 1.0 : 0.0);
    if (!slot.ready) ++bucket.ready;
    slot.ready = true;
  }

  void start_full_buckets() {
    const CommScope scope("data_parallel");
    for (; next_ < buckets_.size() && buckets_[next_].ready == buckets_[next_].slots.size(); ++next_) {
      Bucket& b = buckets_[next_];
      b.started = true;
      b.work = mesh_.comm().all_reduce(b.storage, ReduceOp::Sum);
    }
  }

  // Parameters that this pass did not reach put in what they hold from earlier passes, or zeros.
  void end_pass() {
    const NoGrad guard;
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (!slots_[i].ready) add_term(i);
    start_full_buckets();
    in_pass_ = false;
    for (Bucket& b : buckets_) {
      b.work.wait();
      b.work = Work();
      b.storage.bump_version();
      for (std::size_t i : b.slots) {
        const Slot& s = slots_[i];
        // A gradient of this rank's is one: nothing is read, so the host does not wait for a device.
        if (s.here || b.storage.slice(0, s.flag, 1).at(0) > 0) s.param.set_grad(s.view);
      }
    }
  }

  void abandon_pass() {
    in_pass_ = false;
    for (Bucket& b : buckets_) b.work = Work();
  }

  DeviceMesh mesh_;
  int ddp_axis_;
  std::vector<Slot> slots_;  // in order of registration
  std::vector<Bucket> buckets_;
  std::vector<nn::RunningNorm*> norms_;
  std::size_t next_ = 0;  // the first bucket that has not started
  bool in_pass_ = false;
};

DataParallel::DataParallel(nn::Module& module, const DeviceMesh& mesh, const DataParallelOptions& options)
    : impl_(std::make_shared<Impl>(module, mesh, options)) {
  impl_->attach();
}
DataParallel::~DataParallel() { impl_->detach(); }

DataParallel::NoSync::NoSync(DataParallel& parallel) : parallel_(parallel), previous_(parallel.impl_->sync) {
  parallel.impl_->sync = false;
}
DataParallel::NoSync::~NoSync() { parallel_.impl_->sync = previous_; }

void DataParallel::reduce() { impl_->reduce(); }
std::size_t DataParallel::bucket_count() const { return impl_->buckets().size(); }
std::int64_t DataParallel::bucket_elements(std::size_t bucket) const {
  return impl_->buckets().at(bucket).storage.numel();
}
std::int64_t DataParallel::bucket_bytes(std::size_t bucket) const {
  return impl_->buckets().at(bucket).storage.nbytes();
}

double global_mean_weight(std::int64_t local_count, std::int64_t global_count, int ddp) {
  TS_CHECK(local_count >= 0 && global_count > 0 && local_count <= global_count && ddp >= 1,
           "global_mean_weight", "{} local of {} global samples over {} ranks", local_count, global_count,
           ddp);
  return static_cast<double>(local_count) * ddp / static_cast<double>(global_count);
}

double global_sum_weight(std::int64_t global_count, int ddp) {
  TS_CHECK(global_count > 0 && ddp >= 1, "global_sum_weight", "{} global samples over {} ranks", global_count,
           ddp);
  return ddp / static_cast<double>(global_count);
}

double mean_over_ddp(const Tensor& value, const DeviceMesh& mesh, const std::string& ddp_axis) {
  const double own = value.item();
  if (!mesh.has_axis(ddp_axis)) return own;
  const CommScope scope("mean_over_ddp");
  const int axis = mesh.axis(ddp_axis);
  const Array sum = Array::full({1}, own, DType::F64);
  mesh.group(1U << static_cast<unsigned>(axis)).all_reduce(sum, ReduceOp::Sum).wait();
  return sum.at(0) / mesh.size(axis);
}

}  // namespace tessera::train
