#include "train/scatter.h"

#include <sstream>

#include "mesh/exchange_plan.h"
#include "runtime/error.h"

namespace tessera::train {
namespace {

using Lengths = std::vector<std::vector<std::int64_t>>;
constexpr const char* kOp = "scatter";

struct Arguments {
  const Array& x;
  int source;
  const DeviceMesh& mesh;
  const Placements& placements;
  const Lengths& lengths;
};

// What every rank must pass alike, in words.
std::string common_text(const Arguments& a) {
  std::string text = fmt::format("source {}, placements {}, lengths", a.source, str(a.placements));
  for (const auto& list : a.lengths) {
    text += " [";
    for (std::size_t i = 0; i < list.size(); ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", list[i]);
    text += "]";
  }
  return text;
}

std::string fault_of(const Arguments& a) {
  if (a.source < 0 || a.source >= a.mesh.size())
    return fmt::format("source {} is no rank of the mesh {}, which has {}", a.source, a.mesh.str(),
                       a.mesh.size());
  for (const Placement& p : a.placements)
    if (p.is_partial())
      return fmt::format("placements {}: only Shard and Replicate can be scattered to", str(a.placements));
  if (a.mesh.rank() == a.source && !a.x.defined()) return fmt::format("source {} gave no tensor", a.source);
  return {};
}

// Three lines: the fault or nothing, what all must agree on, and (source only) dtype, device and sizes.
std::string message_of(const Arguments& a) {
  std::string message = fault_of(a) + "\n" + common_text(a) + "\n";
  if (a.mesh.rank() == a.source && a.x.defined()) {
    message += fmt::format("{} {}", static_cast<int>(a.x.dtype()), static_cast<int>(a.x.device()));
    for (std::int64_t n : a.x.sizes()) message += " " + std::to_string(n);
  }
  return message;
}

struct Header {
  DType dtype = DType::F32;
  Device device = Device::Cpu;
  Dims sizes;
};

// Throws on every rank alike if any rank gave wrong arguments or they differ.
Header agree_on_header(const Arguments& a) {
  std::vector<std::array<std::string, 3>> all;
  for (const std::string& message : a.mesh.comm().all_gather_bytes(message_of(a))) {
    std::istringstream in(message);
    std::array<std::string, 3>& lines = all.emplace_back();
    for (std::string& line : lines) std::getline(in, line);
  }
  for (std::size_t r = 0; r < all.size(); ++r)
    TS_CHECK(all[r][0].empty(), kOp, "{} (said rank {})", all[r][0], r);
  for (std::size_t r = 1; r < all.size(); ++r)
    TS_CHECK(all[r][1] == all[0][1], kOp, "ranks must pass the same: rank 0 gave {}; rank {} gave {}",
             all[0][1], r, all[r][1]);
  const std::string& told = all[static_cast<std::size_t>(a.source)][2];
  TS_CHECK(!told.empty(), kOp,
           "rank {} only records, and cannot learn the sizes that source {} has; make the tensor from a spec",
           a.mesh.rank(), a.source);
  std::istringstream in(told);
  Header header;
  int dtype = 0;
  int device = 0;
  in >> dtype >> device;
  header.dtype = static_cast<DType>(dtype);
  header.device = static_cast<Device>(device);
  for (std::int64_t n = 0; in >> n;) header.sizes.push_back(n);
  return header;
}

ExchangePlan plan_from_source(const ShardSpec& spec, const DeviceMesh& mesh, int source) {
  ExchangeProblem problem;
  problem.ranks = mesh.size();
  problem.rank = mesh.rank();
  problem.from = [&](int rank) {
    LocalLayout layout;
    layout.dims.resize(static_cast<std::size_t>(spec.dim()));
    layout.sizes = rank == source ? spec.sizes() : Dims::filled(spec.dim(), 0);
    if (rank == source)
      for (int d = 0; d < spec.dim(); ++d)
        layout.dims[static_cast<std::size_t>(d)] = {{0, 0, spec.sizes()[d]}};
    return layout;
  };
  problem.to = [&](int rank) { return layout_of(spec, rank); };
  problem.matches = [source](int from, int) { return from == source; };
  return plan_exchange(problem);
}

}  // namespace

Tensor scatter(const Array& x, int source, const DeviceMesh& mesh, const Placements& placements,
               const Lengths& lengths) {
  TS_CHECK(mesh.defined(), kOp, "the mesh is undefined");
  const CommScope scope(kOp);
  const Header header = agree_on_header({x, source, mesh, placements, lengths});
  const SpecPtr spec = ShardSpec::from_lengths(mesh, placements, header.sizes, lengths);
  const ExchangePlan plan = plan_from_source(*spec, mesh, source);
  const Array local = Array::empty(spec->local_sizes(), header.dtype, header.device);
  const Array from = mesh.rank() == source ? x : Array::empty(plan.from_sizes, header.dtype, header.device);
  run_exchange(plan, mesh.comm(), local, from);
  return Tensor(local, spec);
}

Tensor scatter(const Tensor& x, int source, const DeviceMesh& mesh, const Placements& placements,
               const Lengths& lengths) {
  TS_CHECK(mesh.defined(), kOp, "the mesh is undefined");
  // A sharded tensor is known to be sharded on every rank that has it; only the source's counts.
  const bool plain = x.defined() && !x.is_sharded();
  return scatter(plain ? x.local() : Array(), source, mesh, placements, lengths);
}

}  // namespace tessera::train
