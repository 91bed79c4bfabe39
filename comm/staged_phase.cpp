#include "comm/staged_phase.h"

#include <algorithm>

namespace tessera {

StagedPhase::StagedPhase(Device device, const Phase& phase) {
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

bool StagedPhase::ready() const {
  return std::all_of(sends_.begin(), sends_.end(), [](const auto& s) { return s->ready(); });
}

void StagedPhase::deliver() {
  for (std::size_t i = 0; i < recvs_.size(); ++i) recvs_[i]->deliver(targets_[i]);
}

}  // namespace tessera
