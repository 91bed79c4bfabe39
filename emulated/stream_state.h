// What streams and events are made of. Internal to streams.cpp and capture.cpp.
#pragma once
#include <driver_types.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "emulated/streams.h"

namespace tessera::emulated {

// How often an event was recorded, and how far the streams have come.
struct EventState {
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  std::uint64_t last = 0;                      // its last record's number among all events'
  std::chrono::steady_clock::time_point when;  // of the latter
};

struct Node {
  TaskMaker make;
  std::vector<std::size_t> after;  // numbers of earlier nodes
};
struct Graph {
  std::vector<Node> nodes;
};

// Of one begin and end.
struct Capture {
  Stream* origin = nullptr;
  Graph graph;
  bool open = true;
  bool broken = false;
};
using Nodes = std::vector<std::size_t>;

struct Event {
  bool timed = false;
  int device = current_device();
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
  // Of one that was last recorded in a stream that was captured.
  std::shared_ptr<Capture> capture;
  Nodes nodes;
};

struct Item {
  Task run;
  // Not before this event has reached that record.
  std::shared_ptr<EventState> event;
  std::uint64_t needs = 0;
};

struct Stream {
  std::deque<Item> items;
  int device = current_device();
  // While it is captured: what the next node comes after.
  std::shared_ptr<Capture> capture;
  Nodes tail;
};

// The lock of all streams, and all of them in the order in which they were made.
std::recursive_mutex& streams_mutex();
const std::vector<std::unique_ptr<Stream>>& all_streams();
unsigned draw_number();
[[noreturn]] void end_unknown(const char* what);

// The parts of record and wait_for that concern a capture.
void record_in_capture(Event& event, const Stream& stream);
cudaError_t wait_in_capture(Stream& stream, const Event& event);

}  // namespace tessera::emulated
