#include "runtime/liveness/pending_work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ranvier::runtime {

std::string to_string(const WorkName& name) {
  std::string text = fmt::format("{}: {}", name.part, name.text);
  if (!name.subject.empty()) text += fmt::format(" {}", name.subject);
  if (name.number >= 0) text += fmt::format(" {}", name.number);
  return text;
}

std::size_t PendingWork::begin(const WorkName& name, const ProgressSource& where, Duration now, Handler handler) {
  if (free_.empty()) {
    free_.push_back(slots_.size());
    slots_.emplace_back();
  }
  const std::size_t number = free_.back();
  free_.pop_back();
  slots_[number] = {{name, &where, now}, std::move(handler), ++begun_};
  ++under_way_;
  return number;
}

Handler PendingWork::end(std::size_t entry) {
  Registered& slot = slots_[entry];
  slot.order = 0;
  free_.push_back(entry);
  --under_way_;
  ++ended_;
  return std::exchange(slot.handler, nullptr);
}

std::vector<PendingWork::Entry> PendingWork::under_way() const {
  std::vector<const Registered*> slots;
  for (const Registered& slot : slots_) {
    if (slot.order > 0) slots.push_back(&slot);
  }
  std::sort(slots.begin(), slots.end(),
            [](const Registered* a, const Registered* b) { return a->order < b->order; });
  std::vector<Entry> entries;
  for (const Registered* slot : slots) entries.push_back(slot->entry);
  return entries;
}

}  // namespace ranvier::runtime
