// Hears of every work as it begins, for tests that compare what two runs send.
#pragma once
#include <vector>

#include "comm/group.h"
#include "comm/phase.h"

namespace tessera {

// Called by the thread that begins a work, before its first message is posted: its phases, whose memory they
// name, and whether a link between devices carries them. What is given is valid during the call.
struct BegunWork {
  const Group& group;
  const std::vector<Phase>& phases;
  Device device = Device::Cpu;
  bool linked = false;
};
using WorkListener = void (*)(const BegunWork& work);
// Of all groups of this process; null: nobody listens. What a graph captured begins once, at the capture.
void listen_to_works(WorkListener listener);

}  // namespace tessera
