#include "actors/pipeline/activation_checkpoints.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::actors {

using models::Stage;
using offload::IoKind;
using offload::Tier;

ActivationCheckpoints::Plan ActivationCheckpoints::plan(PlanContext& planner, const Stage& stage) {
  Plan plan;
  if (stage.checkpoints() == 0) return plan;
  for (std::size_t c = 0; c < stage.checkpoints(); ++c) {
    plan.offsets.push_back(plan.slot_bytes);
    plan.slot_bytes += Tier::whole_blocks(stage.checkpoint_bytes(c, stage.capacity().samples));
  }
  plan.region =
      planner.regions.reserve(planner.tiers.activations, runtime::MemoryKind::activations, "activation checkpoints",
                              plan.slot_bytes * static_cast<std::size_t>(stage.slots()), planner.memory);
  return plan;
}

ActivationCheckpoints::ActivationCheckpoints(const RankContext& context, const Stage& stage, const Plan& plan)
    : context_(&context),
      stage_(&stage),
      plan_(plan),
      checkpoints_(stage_->checkpoints() * static_cast<std::size_t>(stage_->slots())),
      places_(static_cast<std::size_t>(stage_->checkpoint_places())),
      uses_(context.loop, "checkpoints", [this](std::uint64_t use) {
        const bool is_ready = ready(use);
        if (is_ready) bind(uses_[use]);
        return is_ready;
      }) {}

std::uint64_t ActivationCheckpoints::announce(const Announced& pass) {
  const std::uint64_t first = uses_.next();
  if (stage_->checkpoints() == 0) return first;
  const std::uint64_t number = ++passes_;
  const std::size_t base = static_cast<std::size_t>(pass.slot) * stage_->checkpoints();
  for (const Stage::PassStep& step : pass.steps) {
    if (!uses(step)) continue;
    Use& use =
        uses_.add({.pass = number, .samples = pass.samples, .training = pass.training, .backward = pass.backward});
    if (const auto read = stage_->checkpoint_read(step)) use.read = base + *read;
    if (const auto written = stage_->checkpoint_written(step)) use.written = base + *written;
  }
  std::vector<char> read(stage_->checkpoints()), written(stage_->checkpoints());
  for (std::uint64_t u = uses_.next(); u-- > first;) {
    Use& use = uses_[u];
    if (use.read) use.reads_last = !std::exchange(read[*use.read - base], 1);
    if (use.written) use.writes_last = !std::exchange(written[*use.written - base], 1);
  }
  move();
  return first;
}

ActivationCheckpoints::Turn ActivationCheckpoints::turn(std::size_t checkpoint) const {
  const std::size_t of_slot = stage_->checkpoints();
  return {checkpoints_[checkpoint].pass, of_slot - checkpoint % of_slot};
}

std::size_t ActivationCheckpoints::offset(std::size_t checkpoint) const {
  const std::size_t of_slot = stage_->checkpoints();
  return checkpoint / of_slot * plan_.slot_bytes + plan_.offsets[checkpoint % of_slot];
}

/// Bytes to move per checkpoint, rounded up to whole file blocks.
std::span<std::byte> ActivationCheckpoints::bytes(std::size_t place, std::size_t checkpoint) const {
  const std::size_t bytes =
      stage_->checkpoint_bytes(checkpoint % stage_->checkpoints(), checkpoints_[checkpoint].samples);
  return stage_->checkpoint_place(static_cast<int>(place)).first(Tier::whole_blocks(bytes));
}

bool ActivationCheckpoints::idle(const Place& place) const {
  return !place.held && place.steps == 0 && !place.transfer &&
         (!place.checkpoint || checkpoints_[*place.checkpoint].stored);
}

/// An empty buffer; otherwise the idle one whose checkpoint is needed last, and later than `before`.
std::optional<std::size_t> ActivationCheckpoints::free_place(std::optional<Turn> before) const {
  std::optional<std::size_t> last;
  for (std::size_t p = 0; p < places_.size(); ++p) {
    if (!idle(places_[p])) continue;
    if (!places_[p].checkpoint) return p;
    const Turn needed = turn(*places_[p].checkpoint);
    if (before && needed < *before) continue;
    if (!last || turn(*places_[*last].checkpoint) < needed) last = p;
  }
  return last;
}

bool ActivationCheckpoints::ready(std::uint64_t number) const {
  const Use& use = uses_[number];
  if (use.read) {
    const auto place = checkpoints_[*use.read].place;
    if (!place || !places_[*place].here) return false;
  }
  if (!use.written) return true;
  const Checkpoint& checkpoint = checkpoints_[*use.written];
  return checkpoint.pass == use.pass || free_place();
}

void ActivationCheckpoints::when_ready(std::uint64_t use, runtime::Handler handler) {
  uses_.when_ready(use, std::move(handler));
  move();
}

/// Assigns a free buffer to a checkpoint.
void ActivationCheckpoints::take(std::size_t p, std::size_t checkpoint) {
  Place& place = places_[p];
  if (place.checkpoint) checkpoints_[*place.checkpoint].place.reset();
  place = {.checkpoint = checkpoint};
  checkpoints_[checkpoint].place = p;
}

/// Frees the buffer of a checkpoint that no later access reads.
void ActivationCheckpoints::drop(std::size_t checkpoint) {
  Place& place = places_[*std::exchange(checkpoints_[checkpoint].place, std::nullopt)];
  checkpoints_[checkpoint].live = false;
  place.checkpoint.reset();
  place.unsaved = false;
  place.held = false;
}

/// Binds a ready access to its buffers; a ready access stays ready.
void ActivationCheckpoints::bind(Use& use) {
  if (use.read) {
    use.read_place = *checkpoints_[*use.read].place;
    places_[use.read_place].held = true;
  }
  if (!use.written) return;
  Checkpoint& checkpoint = checkpoints_[*use.written];
  if (checkpoint.pass != use.pass) {
    expect(!checkpoint.place, "a checkpoint is written while the one before it is in use");
    const auto place = free_place();
    expect(place.has_value(), "a checkpoint is written where no place is free");
    checkpoint = {.pass = use.pass, .samples = use.samples, .live = use.training};
    take(*place, *use.written);
    places_[*place].held = true;
    places_[*place].here = true;
  }
  use.written_place = *checkpoint.place;
}

void ActivationCheckpoints::provide(std::uint64_t number, models::StepArrays& arrays) {
  expect(number == next_use_ && ready(number), "checkpoints of use {} are taken where use {} comes next", number,
         next_use_);
  ++next_use_;
  Use& use = uses_[number];
  bind(use);
  if (use.read) {
    arrays.checkpoint_read = stage_->checkpoint_place(static_cast<int>(use.read_place)).data();
    ++places_[use.read_place].steps;
    if (use.reads_last && use.training && !use.backward) {
      places_[use.read_place].held = false;
    } else if (use.reads_last) {
      drop(*use.read);
    }
  }
  if (use.written) {
    arrays.checkpoint_written = stage_->checkpoint_place(static_cast<int>(use.written_place)).data();
    ++places_[use.written_place].steps;
  }
}

void ActivationCheckpoints::done(std::uint64_t number) {
  const Use use = uses_.remove(number);
  if (use.read) --places_[use.read_place].steps;
  if (use.written) {
    Place& place = places_[use.written_place];
    --place.steps;
    // Not needed if a queued backward pass already reads it in the buffer.
    const bool needed = place.checkpoint == use.written && checkpoints_[*use.written].pass == use.pass;
    if (use.writes_last && use.training && needed) place.unsaved = true;
  }
  move();
}

void ActivationCheckpoints::move() {
  store_written();
  uses_.check();
  fetch_ahead();
}

void ActivationCheckpoints::store_written() {
  for (std::size_t p = 0; p < places_.size(); ++p) {
    if (!places_[p].unsaved) continue;
    const std::size_t checkpoint = *places_[p].checkpoint;
    // The slot's previous microbatch may have finished before its checkpoint was stored.
    const bool clashes =
        std::ranges::any_of(places_, [&](const Place& place) { return place.transfer == checkpoint; });
    if (clashes) continue;
    places_[p].unsaved = false;
    places_[p].transfer = checkpoint;
    context_->tiers.move(IoKind::write, *plan_.region, offset(checkpoint), {bytes(p, checkpoint)}, [this, p] {
      Place& place = places_[p];
      if (place.checkpoint) checkpoints_[*place.checkpoint].stored = true;
      place.transfer.reset();
      move();
    });
  }
}

/// Number of buffers that earlier accesses than the next fetch need; two keep a forward pass running.
std::size_t ActivationCheckpoints::places_wanted_first() const {
  constexpr std::size_t enough = 2;
  std::size_t places = 0;
  for (std::uint64_t u = next_use_; u < uses_.next(); ++u) {
    const Use& use = uses_[u];
    if (use.backward) return places;
    const bool bound = use.written && checkpoints_[*use.written].pass == use.pass;
    if (use.writes_last && !bound && ++places == enough) return enough;
  }
  return enough;  // messages decide the following accesses
}

void ActivationCheckpoints::fetch_ahead() {
  while (true) {
    std::optional<std::size_t> next;
    for (std::size_t c = 0; c < checkpoints_.size(); ++c) {
      if (!checkpoints_[c].live || !checkpoints_[c].stored || checkpoints_[c].place) continue;
      if (!next || turn(c) < turn(*next)) next = c;
    }
    if (!next) return;
    const std::size_t wanted = *next;
    const auto free = free_place(turn(wanted));
    if (!free) return;
    const auto available = static_cast<std::size_t>(std::ranges::count_if(
        places_, [&](const Place& p) { return idle(p) && (!p.checkpoint || turn(wanted) < turn(*p.checkpoint)); }));
    if (available <= places_wanted_first()) return;
    take(*free, wanted);
    places_[*free].transfer = wanted;
    context_->tiers.move(IoKind::read, *plan_.region, offset(wanted), {bytes(*free, wanted)}, [this, p = *free] {
      places_[p].here = true;
      places_[p].transfer.reset();
      move();
    });
  }
}

}  // namespace ranvier::actors
