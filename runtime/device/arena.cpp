#include "runtime/device/arena.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace ranvier::runtime {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t paged_from_bytes = std::size_t{2} << 20;  // items of at least this size start on a page
constexpr std::array spaces = {MemorySpace::device, MemorySpace::pinned, MemorySpace::host, MemorySpace::nvme};
constexpr std::size_t allocated_spaces = 3;  // nvme is planned only

std::size_t stride_of(const MemoryItem& item) { return round_up(item.slot_bytes, MemoryPlan::alignment); }

/// Bytes of an item: whole pages for large items, so that the next large item starts on a page, too.
std::size_t bytes_of(const MemoryItem& item) {
  const std::size_t bytes = stride_of(item) * item.slots;
  return bytes >= paged_from_bytes ? round_up(bytes, page_bytes) : bytes;
}

/// Whether an item starts on a page: large items, and items with slots of whole pages, as direct I/O requires.
bool is_paged(const MemoryItem& item) {
  return bytes_of(item) >= paged_from_bytes || (item.slot_bytes != 0 && item.slot_bytes % page_bytes == 0);
}

}  // namespace

const char* to_string(MemoryKind kind) noexcept {
  return enum_name<MemoryKind::workspace>(
      kind, {"parameters", "gradients", "optimizer", "activations", "messages", "workspace"});
}

MemoryId MemoryPlan::add(MemoryItem item) {
  constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max();
  if (item.slots != 0 && item.slot_bytes > most / 2 / item.slots)
    fail(ErrorCode::memory, "{} slots of {} bytes for {} are more than any address space", item.slots,
         item.slot_bytes, item.name);
  items_.push_back(std::move(item));
  return {items_.size() - 1};
}

std::size_t MemoryPlan::bytes(std::optional<MemorySpace> space, std::optional<MemoryKind> kind) const {
  std::size_t sum = 0;
  for (const auto& item : items_)
    if (item.space == space.value_or(item.space) && item.kind == kind.value_or(item.kind)) sum += bytes_of(item);
  return sum;
}

namespace {

/// A name split into its numbers and the text between them.
struct Numbered {
  explicit Numbered(const std::string& name) : texts(1) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    for (std::size_t i = 0; i < name.size(); ++i) {
      if (!is_digit(name[i])) {
        texts.back() += name[i];
        continue;
      }
      if (i == 0 || !is_digit(name[i - 1])) {
        numbers.emplace_back();
        texts.emplace_back();
      }
      numbers.back() += name[i];
    }
  }

  [[nodiscard]] std::string name() const {
    std::string name = texts[0];
    for (std::size_t n = 0; n < numbers.size(); ++n) name += numbers[n] + texts[n + 1];
    return name;
  }

  std::vector<std::string> texts, numbers;
};

/// Items of one kind, space and size whose names differ only in numbers: the same arrays of other units.
struct Alike {
  const MemoryItem* first = nullptr;
  Numbered name;  // with * for the numbers that differ
  std::size_t slots = 0;
  std::size_t bytes = 0;
};

std::vector<Alike> alike_items(const std::vector<MemoryItem>& items, MemoryKind kind) {
  std::vector<Alike> all;
  std::map<std::tuple<MemorySpace, std::size_t, std::size_t, std::vector<std::string>>, std::size_t> known;
  for (const MemoryItem& item : items) {
    if (item.kind != kind || bytes_of(item) == 0) continue;
    const Numbered name(item.name);
    const auto [place, is_new] =
        known.try_emplace({item.space, item.slot_bytes, item.slots, name.texts}, all.size());
    if (is_new) all.push_back({.first = &item, .name = name});
    Alike& alike = all[place->second];
    alike.slots += item.slots;
    alike.bytes += bytes_of(item);
    for (std::size_t n = 0; n < name.numbers.size(); ++n) {
      if (alike.name.numbers[n] != name.numbers[n]) alike.name.numbers[n].assign(1, '*');
    }
  }
  return all;
}

}  // namespace

std::string MemoryPlan::table() const {
  constexpr std::size_t text_columns = 3, columns = 6;  // then numbers, aligned to the right
  using Row = std::array<std::string, columns>;
  std::vector<Row> rows = {{"kind", "what", "where", "slots", "each", "bytes"}};
  for (int kind_number = 0; kind_number < memory_kinds; ++kind_number) {
    const auto kind = static_cast<MemoryKind>(kind_number);
    for (const Alike& alike : alike_items(items_, kind))
      rows.push_back({to_string(kind), alike.name.name(), to_string(alike.first->space),
                      fmt::format("{}", alike.slots), format_bytes(alike.first->slot_bytes),
                      format_bytes(alike.bytes)});
  }
  // Sums follow the items: per space and kind, then per space.
  for (const MemorySpace space : spaces) {
    for (int kind_number = 0; kind_number < memory_kinds; ++kind_number) {
      const auto kind = static_cast<MemoryKind>(kind_number);
      if (const std::size_t sum = bytes(space, kind); sum != 0)
        rows.push_back({"sum", to_string(kind), to_string(space), "", "", format_bytes(sum)});
    }
    if (const std::size_t sum = bytes(space); sum != 0 || space == MemorySpace::device)
      rows.push_back({"total", "", to_string(space), "", "", format_bytes(sum)});
  }

  std::array<std::size_t, columns> width{};
  for (const Row& row : rows)
    for (std::size_t c = 0; c < columns; ++c) width[c] = std::max(width[c], row[c].size());
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < columns; ++c)
      text += c < text_columns ? fmt::format("{:<{}}  ", row[c], width[c])
                               : fmt::format("{:>{}}{}", row[c], width[c], c + 1 < columns ? "  " : "\n");
  }
  return text;
}

std::optional<std::string> device_memory_lack(const Device& device, const MemoryPlan& plan) {
  const std::size_t needed = plan.bytes(MemorySpace::device);
  const std::size_t free = device.budget_bytes() - std::min(device.used_bytes(), device.budget_bytes());
  if (needed <= free) return std::nullopt;
  return fmt::format("the plan needs {} of device memory, but {} of the budget of {} is free\n{}",
                     format_bytes(needed), format_bytes(free), format_bytes(device.budget_bytes()), plan.table());
}

Arena::Arena(Device& device, const MemoryPlan& plan) {
  if (const auto lack = device_memory_lack(device, plan))
    fail(ErrorCode::memory, "{}raise `device_memory`, or reduce the plan", *lack);

  std::array<std::byte*, spaces.size()> base{};
  for (std::size_t i = 0; i < allocated_spaces; ++i) {
    std::size_t bytes = 0;
    for (const MemoryItem& item : plan.items())
      if (item.space == spaces[i] && !item.elsewhere) bytes += bytes_of(item);
    try {
      buffers_.push_back(device.allocate(bytes, spaces[i]));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::memory) fail(ErrorCode::memory, "{}\n{}", error.what(), plan.table());
      throw;
    }
    base[i] = buffers_.back().data();
  }

  first_.resize(plan.items().size());
  stride_.resize(plan.items().size());
  slots_.resize(plan.items().size());
  std::array<std::size_t, spaces.size()> offset{};
  for (const bool paged : {true, false}) {  // large items first: each is a whole number of pages
    for (std::size_t i = 0; i < plan.items().size(); ++i) {
      const MemoryItem& item = plan.items()[i];
      if (is_paged(item) != paged || item.elsewhere) continue;
      const auto space = static_cast<std::size_t>(item.space);
      if (space >= allocated_spaces) continue;
      first_[i] = base[space] + offset[space];
      stride_[i] = stride_of(item);
      slots_[i] = item.slots;
      offset[space] += bytes_of(item);
    }
  }
}

std::byte* Arena::slot(MemoryId item, std::size_t slot) const {
  expect(item.index < first_.size(), "item {} of an arena of {}", item.index, first_.size());
  expect(slot < slots_[item.index], "slot {} of {} of item {}", slot, slots_[item.index], item.index);
  return first_[item.index] + slot * stride_[item.index];
}

std::string format_bytes(std::size_t bytes) {
  constexpr std::array units = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1023.95 && unit + 1 < units.size(); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace ranvier::runtime
