#include "actors/gradient_sync.hpp"

#include "collectives/ring.hpp"
#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <map>

namespace ranvier::actors {

using runtime::Channel;
using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SpanKind;
using runtime::Tag;
using runtime::Trace;

namespace {

constexpr std::size_t units_at_a_time = 2;  // one sends while the other one's additions run

int chunks_of(std::size_t elements, const GradientSync::Options& options, runtime::DType dtype) {
  const std::size_t piece_bytes = elements * runtime::size_of(dtype) / options.column.size();
  return static_cast<int>(std::max<std::size_t>(1, (piece_bytes + options.chunk_bytes - 1) / options.chunk_bytes));
}

}  // namespace

GradientSync::Memory GradientSync::plan(const UnitStates& states, const Options& options,
                                        runtime::MemoryPlan& plan) {
  const auto ranks = static_cast<int>(options.column.size());
  const runtime::DType dtype = states.precision().gradient;
  Memory memory;
  std::size_t staging_bytes = 0;
  bool exchanges = false;
  for (std::size_t u = 0; u < states.all().size(); ++u) {
    exchanges = exchanges || options.partners[u].has_value();
    if (ranks == 1) continue;
    const std::size_t elements = states.all()[u].elements;
    const int chunks = chunks_of(elements, options, dtype);
    const auto in_flight = std::make_shared<const std::vector<collectives::Script>>(
        static_cast<std::size_t>(std::min(chunks, options.depth)),
        collectives::script_of(collectives::ring_all_reduce(ranks, elements, chunks, chunks - 1),
                               options.row));  // none is larger than the last
    staging_bytes =
        std::max(staging_bytes, collectives::Executor::staging_bytes(
                                    {.parts = {{nullptr, in_flight}}, .dtype = dtype, .depth = options.depth}));
  }
  memory.reduce_staging = plan.add({MemoryKind::messages, MemorySpace::device, "gradients arriving from the column",
                                    staging_bytes, ranks > 1 ? units_at_a_time : 1});
  memory.exchange_staging =
      plan.add({MemoryKind::messages, MemorySpace::device, "tied gradients arriving from the other stage",
                exchanges ? options.chunk_bytes : 0, static_cast<std::size_t>(options.depth)});
  memory.squares = plan.add(
      {MemoryKind::workspace, MemorySpace::pinned, "sums of squares", sizeof(double), states.all().size()});
  return memory;
}

GradientSync::GradientSync(runtime::EventLoop& loop, runtime::Transport& transport, collectives::Executor& executor,
                           runtime::StreamView compute, const UnitStates& states, const models::Stage& stage,
                           Trace& trace, Options options, Memory memory, const runtime::Arena& arena)
    : loop_(&loop),
      transport_(&transport),
      executor_(&executor),
      compute_(compute),
      states_(&states),
      stage_(&stage),
      trace_(&trace),
      options_(std::move(options)),
      memory_(std::move(memory)),
      exchange_elements_(options_.chunk_bytes / runtime::size_of(states.precision().gradient)),
      units_(states.all().size()) {
  const std::size_t buffers = options_.column.size() > 1 ? units_at_a_time : 1;
  for (std::size_t b = 0; b < buffers; ++b) free_staging_.push_back(arena.slot(memory_.reduce_staging, b));
  for (int d = 0; d < options_.depth; ++d) {
    exchange_staging_.push_back(arena.slot(memory_.exchange_staging, static_cast<std::size_t>(d)));
  }
  // A unit is complete with the frontmost layer that uses it.
  std::vector<std::size_t> front(units_.size(), stage.layers());
  for (const models::Stage::UnitUse& use : stage.uses()) front[use.unit] = std::min(front[use.unit], use.layer);
  for (std::size_t u = 0; u < units_.size(); ++u) order_.push_back(u);
  std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
    const bool tied_a = options_.partners[a].has_value(), tied_b = options_.partners[b].has_value();
    return tied_a != tied_b ? tied_b : front[a] > front[b];
  });

  const auto ranks = static_cast<int>(options_.column.size());
  std::map<std::size_t, Plans> plans_of_size;
  std::uint32_t tag = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    squares_.push_back(arena.slot_as<double>(memory_.squares, u));
    if (ranks == 1) continue;
    const std::size_t elements = states.all()[u].elements;
    Plans& plans = plans_of_size[elements];
    if (!plans) {
      const int chunks = chunks_of(elements, options_, states.precision().gradient);
      std::vector<collectives::Script> made;
      for (int c = 0; c < chunks; ++c) {
        made.push_back(
            collectives::script_of(collectives::ring_all_reduce(ranks, elements, chunks, c), options_.row));
      }
      plans = std::make_shared<const std::vector<collectives::Script>>(std::move(made));
    }
    units_[u].plans = plans;
    units_[u].first_tag = tag;
    tag += static_cast<std::uint32_t>(plans->size());
  }
}

void GradientSync::start(runtime::Handler done) {
  expect(missing_ == 0, "gradients of one batch are synchronised at a time");
  done_ = std::move(done);
  missing_ = units_.size();
  next_in_order_ = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    units_[u].uses_missing = static_cast<int>(states_->all()[u].gradients.size());
    units_[u].ready = false;
  }
  if (missing_ == 0) loop_->post(std::exchange(done_, nullptr));
}

void GradientSync::layer_ready(std::size_t layer) {
  for (const models::Stage::UnitUse& use : stage_->uses()) {
    if (use.layer == layer && --units_[use.unit].uses_missing == 0) uses_complete(use.unit);
  }
}

void GradientSync::after_compute(runtime::Handler next) {
  compute_.call_back([loop = loop_, next = std::move(next)] { loop->post(next); });
}

void GradientSync::uses_complete(std::size_t u) {
  const UnitState& state = states_->all()[u];
  if (options_.partners[u]) {
    units_[u].exchanges_begun = 0;
    units_[u].exchanges_missing = (state.elements + exchange_elements_ - 1) / exchange_elements_;
    const std::size_t at_once = std::min(exchange_staging_.size(), units_[u].exchanges_missing);
    for (std::size_t s = 0; s < at_once; ++s) exchange_next(u, s);
  } else if (state.gradients.size() > 1) {
    runtime::add(compute_, state.gradients[0], state.gradients[1], states_->precision().gradient, state.elements);
    after_compute([this, u] { summed(u); });
  } else {
    summed(u);
  }
}

void GradientSync::exchange_next(std::size_t u, std::size_t staging) {
  const UnitState& state = states_->all()[u];
  const runtime::DType dtype = states_->precision().gradient;
  const std::size_t begin = units_[u].exchanges_begun++ * exchange_elements_;
  const std::size_t count = std::min(exchange_elements_, state.elements - begin);
  const std::size_t bytes = count * runtime::size_of(dtype);
  std::byte* mine = state.gradients[0] + begin * runtime::size_of(dtype);
  const int peer = *options_.partners[u];
  const Tag tag{Channel::tied, static_cast<std::uint32_t>(state.global_index)};
  // The sum overwrites what is being sent, so both must be through.
  auto halves = std::make_shared<int>(2);
  const auto half_done = [this, u, staging, mine, count, dtype, halves] {
    if (--*halves > 0) return;
    runtime::add(compute_, mine, exchange_staging_[staging], dtype, count);
    after_compute([this, u, staging] {
      if (--units_[u].exchanges_missing == 0) return summed(u);
      const std::size_t chunks = (states_->all()[u].elements + exchange_elements_ - 1) / exchange_elements_;
      if (units_[u].exchanges_begun < chunks) exchange_next(u, staging);
    });
  };
  transport_->receive(peer, tag, runtime::Bytes(exchange_staging_[staging], bytes), half_done);
  transport_->send(peer, tag, runtime::ConstBytes(mine, bytes), half_done);
}

void GradientSync::summed(std::size_t u) {
  if (options_.column.size() == 1) return reduced(u);
  units_[u].ready = true;
  reduce_ready();
}

void GradientSync::reduce_ready() {
  while (next_in_order_ < order_.size() && units_[order_[next_in_order_]].ready && !free_staging_.empty()) {
    const std::size_t u = order_[next_in_order_++];
    std::byte* staging = free_staging_.back();
    free_staging_.pop_back();
    const auto begin = Trace::Clock::now();
    executor_->run({.parts = {{states_->all()[u].gradients[0], units_[u].plans}},
                    .members = options_.column,
                    .me = options_.row,
                    .staging = staging,
                    .dtype = states_->precision().gradient,
                    .channel = Channel::collective,
                    .index = units_[u].first_tag,
                    .depth = options_.depth},
                   [this, u, staging, begin] {
                     trace_->add(SpanKind::reduce, Trace::Lane::communicate, begin, Trace::Clock::now(),
                                 static_cast<int>(states_->all()[u].global_index));
                     free_staging_.push_back(staging);
                     reduced(u);
                     reduce_ready();
                   });
  }
}

void GradientSync::reduced(std::size_t u) {
  const UnitState& state = states_->all()[u];
  runtime::sum_of_squares(compute_, squares_[u], state.gradients[0], states_->precision().gradient,
                          state.spec->elements());
  after_compute([this] {
    if (--missing_ == 0) std::exchange(done_, nullptr)();
  });
}

}  // namespace ranvier::actors
