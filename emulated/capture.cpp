#include "emulated/capture.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "emulated/stream_state.h"

namespace tessera::emulated {
namespace {

cudaError_t broken(Capture& capture, cudaError_t code) {
  capture.broken = true;
  return code;
}

void add_once(Nodes& to, const Nodes& from) {
  for (const std::size_t node : from)
    if (std::find(to.begin(), to.end(), node) == to.end()) to.push_back(node);
}

// Whether every node of `nodes` comes before one of `ends`, or is one of them.
bool reached(const Graph& graph, const Nodes& nodes, const Nodes& ends) {
  std::vector<bool> seen(graph.nodes.size());
  Nodes open = ends;
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    open.insert(open.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return std::all_of(nodes.begin(), nodes.end(), [&](std::size_t n) { return seen[n]; });
}

// All that there are.
std::map<const Graph*, std::unique_ptr<Graph>>& graphs() {
  static auto* all = new std::map<const Graph*, std::unique_ptr<Graph>>;
  return *all;
}
Graph* keep_graph(Graph graph) {
  const std::lock_guard lock(streams_mutex());
  auto kept = std::make_unique<Graph>(std::move(graph));
  Graph* p = kept.get();
  graphs().emplace(p, std::move(kept));
  return p;
}

// One launch: a task that is asked until all nodes have run. A few at a time, so that other streams come
// between.
class Launch {
 public:
  Launch(const Graph& graph, unsigned seed) : random_(seed) {
    for (const Node& node : graph.nodes) {
      tasks_.push_back(node.make());
      waits_.push_back(node.after.size());
      follow_.emplace_back();
      for (const std::size_t before : node.after) follow_[before].push_back(tasks_.size() - 1);
      if (node.after.empty()) ready_.push_back(tasks_.size() - 1);
    }
    left_ = tasks_.size();
  }

  bool operator()() {
    for (unsigned turns = 1 + random_() % 8; turns > 0 && !ready_.empty(); --turns) {
      const std::size_t place = random_() % ready_.size();
      const std::size_t node = ready_[place];
      if (!tasks_[node]()) continue;
      ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(place));
      tasks_[node] = nullptr;
      --left_;
      for (const std::size_t next : follow_[node])
        if (--waits_[next] == 0) ready_.push_back(next);
    }
    return left_ == 0;
  }

 private:
  std::mt19937 random_;
  std::vector<Task> tasks_;
  std::vector<std::size_t> waits_;  // for so many nodes
  std::vector<Nodes> follow_;
  Nodes ready_;
  std::size_t left_ = 0;
};

}  // namespace

cudaError_t begin_capture(Stream* stream) {
  const std::lock_guard lock(streams_mutex());
  if (stream->capture) return cudaErrorIllegalState;
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->tail.clear();
  return cudaSuccess;
}

cudaError_t end_capture(Stream* stream, Graph** graph) {
  const std::lock_guard lock(streams_mutex());
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != stream) return broken(*capture, cudaErrorStreamCaptureUnmatched);
  capture->open = false;
  bool joined = true;
  const Nodes ends = stream->tail;
  for (const auto& other : all_streams()) {
    if (other->capture != capture) continue;
    joined = joined && reached(capture->graph, other->tail, ends);
    other->capture.reset();
    other->tail.clear();
  }
  if (capture->broken) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph = keep_graph(std::move(capture->graph));
  return cudaSuccess;
}

void drop_graph(Graph* graph) {
  const std::lock_guard lock(streams_mutex());
  graphs().erase(graph);
}
Graph* copy_graph(const Graph* graph) { return keep_graph(*graph); }
void check_in_use(const Graph* graph) {
  const std::lock_guard lock(streams_mutex());
  if (graphs().count(graph) == 0) end_unknown("a graph");
}

void launch_graph(const Graph* graph, Stream* stream) {
  ++counters().graph_launches;
  const auto launch = std::make_shared<Launch>(*graph, draw_number());
  enqueue(stream, [launch] { return (*launch)(); });
}

void record_in_capture(Event& event, const Stream& stream) {
  event.capture = stream.capture;
  event.nodes = stream.tail;
}

cudaError_t wait_in_capture(Stream& stream, const Event& event) {
  if (!event.capture) {
    if (event.state->recorded == 0) return cudaSuccess;
    return broken(*stream.capture, cudaErrorStreamCaptureIsolation);
  }
  if (!event.capture->open) return cudaErrorCapturedEvent;
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.tail.clear();
  }
  if (stream.capture != event.capture) return broken(*stream.capture, cudaErrorStreamCaptureMerge);
  add_once(stream.tail, event.nodes);
  return cudaSuccess;
}

cudaError_t refuse_wait(Stream* stream) {
  const std::lock_guard lock(streams_mutex());
  cudaError_t answer = cudaSuccess;
  for (const auto& s : all_streams())
    if (s->capture && (stream == nullptr || stream == s.get()))
      answer = broken(*s->capture, cudaErrorStreamCaptureUnsupported);
  return answer;
}

cudaError_t refuse_unstaged_copy(Stream* stream) {
  const std::lock_guard lock(streams_mutex());
  return stream->capture ? broken(*stream->capture, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t refuse_captured(Event* event) {
  const std::lock_guard lock(streams_mutex());
  if (!event->capture) return cudaSuccess;
  return event->capture->open ? broken(*event->capture, cudaErrorCapturedEvent) : cudaErrorCapturedEvent;
}

}  // namespace tessera::emulated
