#include "ops/indexing/take.h"

#include "ops/indexing/kernels.h"
#include "ops/indexing/rows.h"

namespace tessera {
namespace {

std::string refusal(std::int64_t number, int dim, std::int64_t n) {
  return fmt::format("index {} is out of range for dim {} of size {}", number, dim, n);
}

// A local call: the array of rows as [a, rows, b], the numbers, and who holds what.
struct Job {
  const OpDef& op;
  const Picking& picking;
  std::int64_t n = 0;                 // rows of the whole tensor
  const RowOwners* owners = nullptr;  // null: this rank has all rows
  Array index = {};                   // I64, contiguous
  bool unchecked = false;             // somebody has to look at the numbers
  bool watched = false;               // the device does, where they are used

  std::string refusal(std::int64_t number) const { return tessera::refusal(number, picking.dim, n); }
};

constexpr auto kNothing = std::int64_t{-1};

// Local sizes [a, rows, b] around the indexed dim(s).
Dims three(const Dims& sizes, int first, int last) {
  Dims out{1, 1, 1};
  for (int d = 0; d < sizes.size(); ++d) out[d < first ? 0 : d < last ? 1 : 2] *= sizes[d];
  return out;
}
Array as_rows(const Array& x, int dim) { return x.reshape(three(x.sizes(), dim, dim + 1)); }
Array as_taken(const Array& y, const Job& job) {
  const int dims = job.picking.elements ? 1 : job.index.dim();
  return y.reshape(three(y.sizes(), job.picking.dim, job.picking.dim + dims));
}
Array as_line(const Array& x) { return x.reshape({1, x.numel(), 1}); }

std::optional<std::int64_t> wrong_number(const Job& job, const Array& index) {
  if (index.device() == Device::Meta) return {};
  const std::int64_t least = job.picking.from_end ? -job.n : 0;
  const std::int64_t* numbers = index.data<std::int64_t>();
  for (std::int64_t i = 0; i < index.numel(); ++i)
    if (numbers[i] < least || numbers[i] >= job.n) return numbers[i];
  return {};
}

Array as_numbers(const Array& index) { return index.to(DType::I64).contiguous(); }
bool on_device(const Array& a) { return a.device() != Device::Cpu && a.device() != Device::Meta; }
// Where numbers decide what travels, the host has to see them: for a device, that waits for it.
Array on_host(const Array& a) { return on_device(a) ? a.to(Device::Cpu) : a; }

// The number of the row that an entry of the index means.
std::int64_t meant(const Job& job, std::int64_t number) {
  if (job.picking.from_end && number < 0) return number + job.n;
  return job.picking.skips_padding && number == job.picking.padding ? kNothing : number;
}

// Numbers of rows as they lie here; what is not here is nothing.
Array own_numbers(const Job& job) {
  const bool as_they_are =
      job.owners == nullptr && !job.picking.skips_padding && !job.picking.from_end && !job.watched;
  if (as_they_are || job.index.device() == Device::Meta) return job.index;
  cpu::OwnNumbersArgs args;
  args.own = Array::empty(job.index.sizes(), DType::I64, job.index.device());
  args.numbers = job.index;
  args.n = job.n;
  if (job.picking.skips_padding) args.padding = job.picking.padding;
  args.from_end = job.picking.from_end;
  args.all = job.owners == nullptr;
  std::vector<cpu::HeldRows> held;
  if (!args.all) held = job.owners->own_rows();
  args.held = held;
  if (job.watched) {
    args.op = job.op.name;
    // Called when the job is over.
    args.refusal = [dim = job.picking.dim, n = job.n](std::int64_t number) {
      return refusal(number, dim, n);
    };
  }
  kernels::own_numbers(job.index.device(), args);
  return args.own;
}

// Where the rows lie that the numbers mean. Elements are rows of one element: their position in the owner's
// local array. On the meta device the numbers are unknown: as many rows of each rank.
RowExchange::Places places_of(const Job& job) {
  RowExchange::Places places(static_cast<std::size_t>(job.index.numel()));
  const RowOwners& owners = *job.owners;
  const bool unknown = job.index.device() == Device::Meta;
  const Dims sizes = three(job.index.sizes(), job.picking.dim, job.picking.dim + 1);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (unknown) {
      places[i] = {static_cast<int>(i) % owners.members(), static_cast<std::int64_t>(i)};
      continue;
    }
    places[i] = owners.find(meant(job, job.index.data<std::int64_t>()[i]));
    if (!job.picking.elements || places[i].member < 0) continue;
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t a = at / (sizes[1] * sizes[2]);
    places[i].row = (a * owners.rows_of(places[i].member) + places[i].row) * sizes[2] + at % sizes[2];
  }
  return places;
}

// `rows` [a, rows, b], as this rank holds or wants them. Elements are rows of one.
RowExchange prepared(const Job& job, const Array& rows) {
  const RowOwners& owners = *job.owners;
  const std::int64_t row = rows.size(0) * rows.size(2);
  RowExchange::Held held;
  for (int m = 0; m < owners.members(); ++m)
    held.rows.push_back(owners.rows_of(m) * (job.picking.elements ? row : 1));
  held.row_bytes = static_cast<std::int64_t>(size_of(rows.dtype())) * (job.picking.elements ? 1 : row);
  RowExchange exchange(owners.comm(), places_of(job), std::move(held));
  exchange.agree_on_counts(job.op.name, job.unchecked ? wrong_number(job, job.index) : std::nullopt,
                           [&](std::int64_t number) { return job.refusal(number); });
  return exchange;
}

// The mode in which whatever one rank refuses all refuse, there and then.
bool all_refuse(const LocalCall& l) {
  return l.plan != nullptr && l.in_spec(0)->mesh().comm().checks_calls();
}

void check_alone(const Job& job, const LocalCall& l) {
  const std::optional<std::int64_t> wrong = wrong_number(job, on_host(job.index));
  const std::string text = wrong ? job.refusal(*wrong) : "";
  if (all_refuse(l)) agree(l.in_spec(0)->mesh().comm(), job.op.name, text);
  if (wrong) TS_FAIL(Usage, job.op.name, "{}", text);
}

void take_local(const Job& job, const Array& x, const Array& out) {
  const Array rows = as_rows(x, job.picking.dim);
  if (job.owners != nullptr && !job.owners->alone()) {
    RowExchange exchange = prepared(job, rows);
    if (job.picking.elements) {
      kernels::take_rows(x.device(), {as_line(out), exchange.fetch(as_line(x)), exchange.slots()});
    } else {
      kernels::take_rows(x.device(), {as_taken(out, job), exchange.fetch(rows), exchange.slots()});
    }
    return;
  }
  const Array numbers = own_numbers(job);
  if (job.picking.elements) {
    kernels::take_elements(x.device(),
                           {as_taken(out, job), rows, numbers.reshape(as_taken(out, job).sizes())});
  } else {
    kernels::take_rows(x.device(), {as_taken(out, job), rows, numbers});
  }
}

// `out` is zero, in the type that sums are made in.
void put_local(const Job& job, const Array& given, const Array& out) {
  const Array terms = as_taken(given, job);
  const Array rows = as_rows(out, job.picking.dim);
  if (job.owners != nullptr && !job.owners->alone()) {
    RowExchange exchange = prepared(job, rows);
    const auto room = [&](std::int64_t a, std::int64_t b) {
      return Array::zeros({exchange.wanted(), a, b}, out.dtype(), out.device()).transpose(0, 1);
    };
    if (job.picking.elements) {
      const Array packed = room(1, 1);
      kernels::put_rows(out.device(), {packed, as_line(given), exchange.slots()});
      exchange.deliver(packed, as_line(out));
    } else {
      const Array packed = room(terms.size(0), terms.size(2));
      kernels::put_rows(out.device(), {packed, terms, exchange.slots()});
      exchange.deliver(packed, rows);
    }
    return;
  }
  const Array numbers = own_numbers(job);
  if (job.picking.elements) {
    kernels::put_elements(out.device(), {rows, terms, numbers.reshape(terms.sizes())});
  } else {
    kernels::put_rows(out.device(), {rows, terms, numbers});
  }
}

// Where every rank's host sees all numbers, all refuse alike, before any message.
Job job_for(Job job, const Tensor& index) {
  if (job.picking.checked) return job;
  job.unchecked = (index.is_sharded() && !index.spec()->is_replicated()) || on_device(index.local());
  if (job.unchecked) {  // but where no number can be right
    TS_CHECK(job.n > 0 || index.numel() == 0, job.op.name,
             "each index of {} is out of range for dim {} of size 0", index.sizes().str(), job.picking.dim);
    return job;
  }
  job.index = as_numbers(index.local());
  if (const std::optional<std::int64_t> wrong = wrong_number(job, job.index))
    TS_FAIL(Usage, job.op.name, "{}", job.refusal(*wrong));
  return job;
}

Hash hash_of(const Picking& p) {
  return Hash()
      .add(std::int64_t{p.dim})
      .add(static_cast<std::int64_t>(p.elements))
      .add(static_cast<std::int64_t>(p.nearby));
}

const OpDef kTaken{"index_take"};
const OpDef kPut{"index_put"};

// Completes a job with what a local call sees, and looks at the numbers if nobody has.
void look(Job& job, const LocalCall& l) {
  job.index = as_numbers(l.in[1]);
  job.owners = l.plan ? static_cast<const RowOwners*>(l.plan->extra.get()) : nullptr;
  if (job.owners != nullptr && !job.owners->alone()) {
    job.index = on_host(job.index);
    return;
  }
  if (!job.unchecked) return;
  job.watched = on_device(job.index) && !all_refuse(l);
  if (!job.watched) check_alone(job, l);
}

}  // namespace

Tensor take(const OpDef& op, const Picking& picking, const Tensor& x, const Tensor& index) {
  const std::array<Tensor, 2> inputs{x, index};
  const Dims sizes = taken_sizes(picking, x.sizes(), index.sizes());
  Job job = job_for({op, picking, x.sizes()[picking.dim]}, index);
  auto local = [&](LocalCall& l) {
    look(job, l);
    l.out[0] = Array::empty(l.out_sizes(0, sizes), l.in[0].dtype(), l.in[0].device());
    take_local(job, l.in[0], l.out[0]);
  };
  auto plan = [&](const std::vector<SpecPtr>& in) { return take_plan(picking, in); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    Picking back = picking;
    back.skips_padding = picking.padding >= 0;
    back.checked = true;
    return [back, like = PutTarget{job.n, in[0].spec()}, numbers = SavedTensor(in[1])](const BackwardContext&,
                                                                                       const Tensors& g) {
      return Tensors{put(kPut, back, g[0], numbers.unpack("index_put"), like)};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.parameters = hash_of(picking);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

Tensor put(const OpDef& op, const Picking& picking, const Tensor& terms, const Tensor& index,
           const PutTarget& target) {
  const std::array<Tensor, 2> inputs{terms, index};
  Dims sizes = terms.sizes();
  if (picking.elements) {
    sizes[picking.dim] = target.n;
  } else {
    for (int d = 0; d < index.dim(); ++d) sizes.erase(picking.dim);
    sizes.insert(picking.dim, target.n);
  }
  Job job = job_for({op, picking, target.n}, index);
  auto local = [&](LocalCall& l) {
    look(job, l);
    const DType type = l.in[0].dtype();
    const Array sum =
        Array::zeros(l.out_sizes(0, sizes), is_half(type) ? DType::F32 : type, l.in[0].device());
    put_local(job, l.in[0], sum);
    l.out[0] = sum.to(type);
  };
  auto plan = [&](const std::vector<SpecPtr>& in) { return put_plan(picking, in, sizes, target.like); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    Picking back = picking;
    back.checked = true;
    return [back, numbers = SavedTensor(in[1])](const BackwardContext&, const Tensors& g) {
      return Tensors{take(kTaken, back, g[0], numbers.unpack("index_take"))};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.parameters = hash_of(picking).add(target.n).add(reinterpret_cast<std::int64_t>(target.like.get()));
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace tessera
