#include "ops/memory_order.h"
#include "ops/window/window_plan.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

Array source_of(const WindowParts& parts, const WindowCopy& copy, const Array& own, const Array& arrivals) {
  const Array& from = copy.box < 0 ? own : arrivals;
  const Array whole = copy.box < 0 ? from : box_of(from, parts.boxes[static_cast<std::size_t>(copy.box)]);
  return whole.box(copy.from, copy.extent);
}

}  // namespace

bool in_parts(const WindowPlan& plan, const Array& x) { return in_parts(plan, x, x.sizes()); }

bool in_parts(const WindowPlan& plan, const Array& y, const Dims& x_sizes) {
  return plan.parts.used && numel_of(x_sizes) >= frames_from() && !is_half(y.dtype());
}

void each_part(const WindowPlan& plan, const Array& x,
               FunctionRef<void(const WindowPart& part, const Array& read)> run) {
  const auto& [exchange, comm] = *plan.buffer.map();
  const Array arrivals = empty_arrivals(exchange, x);
  ExchangeInFlight halo = start_arrivals(exchange, comm, arrivals, x, message_order(x.dim()));
  const Dims order = memory_order(x);
  for (const WindowPart& part : plan.parts.parts) {
    if (part.copies.empty()) {
      run(part, x);
      halo.finish();
      continue;
    }
    const Array read = empty_in_order(order, part.sizes, x.dtype(), x.device());
    for (const WindowCopy& copy : part.copies)
      copy_strided(read.box(copy.to, copy.extent), source_of(plan.parts, copy, x, arrivals));
    run(part, read);
  }
}

Array sum_of_parts(const WindowPlan& plan, const Dims& order, const Array& y,
                   FunctionRef<void(const WindowPart& part, const Array& read)> run) {
  const auto& [exchange, comm] = *plan.buffer.map();
  Array arrivals = empty_arrivals(exchange, y);
  arrivals.zero_();
  Array own = empty_in_order(order, exchange.from_sizes, y.dtype(), y.device());
  const std::span<const WindowPart> edges = std::span(plan.parts.parts).subspan(1);
  std::vector<Array> given;
  given.reserve(edges.size());
  const auto add = [&](std::size_t i, bool arrived) {
    for (const WindowCopy& copy : edges[i].copies)
      if ((copy.box >= 0) == arrived)
        add_into(source_of(plan.parts, copy, own, arrivals), given[i].box(copy.to, copy.extent));
  };
  for (std::size_t i = 0; i < edges.size(); ++i) {
    given.push_back(empty_in_order(order, edges[i].sizes, y.dtype(), y.device()));
    run(edges[i], given[i]);
    add(i, true);
  }
  ExchangeInFlight halo = start_returns(exchange, comm, own, arrivals, message_order(order.size()));
  run(plan.parts.parts.front(), own);
  for (std::size_t i = 0; i < edges.size(); ++i) add(i, false);
  halo.finish();
  return own;
}

}  // namespace tessera
