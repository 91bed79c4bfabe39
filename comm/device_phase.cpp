#include "comm/device_phase.h"

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

class StagedPhase final : public DevicePhase {
 public:
  StagedPhase(Device device, const Phase& phase) {
    host_.step = phase.step;
    for (const Transfer& t : phase.sends) {
      sends_.push_back(make_staging(device, t.bytes));
      sends_.back()->fetch(t.data);
      host_.send(t.peer, sends_.back()->data(), t.bytes);
    }
    for (const Transfer& t : phase.recvs) {
      recvs_.push_back(make_staging(device, t.bytes));
      targets_.push_back(t.data);
      host_.recv(t.peer, recvs_.back()->data(), t.bytes);
    }
  }
  bool ready() const override {
    return std::all_of(sends_.begin(), sends_.end(), [](const auto& s) { return s->ready(); });
  }
  const Phase& transfers() const override { return host_; }
  void deliver() override {
    for (std::size_t i = 0; i < recvs_.size(); ++i) recvs_[i]->deliver(targets_[i]);
  }

 private:
  std::vector<std::unique_ptr<Staging>> sends_;
  std::vector<std::unique_ptr<Staging>> recvs_;
  std::vector<char*> targets_;  // of recvs_
  Phase host_;
};

class HandedPhase final : public DevicePhase {
 public:
  HandedPhase(Device device, const Phase& phase) : phase_(phase) {
    if (!phase.sends.empty() || !phase.recvs.empty()) before_ = mark_point(device);
  }
  bool ready() const override { return before_ == nullptr || before_->reached(); }
  const Phase& transfers() const override { return phase_; }
  void deliver() override {}  // it is there

 private:
  const Phase& phase_;
  std::unique_ptr<DevicePoint> before_;
};

}  // namespace

std::unique_ptr<DevicePhase> stage_phase(Device device, const Phase& phase) {
  return std::make_unique<StagedPhase>(device, phase);
}

std::unique_ptr<DevicePhase> hand_over_phase(Device device, const Phase& phase) {
  return std::make_unique<HandedPhase>(device, phase);
}

}  // namespace tessera
