// Memory as data: everything that a run will hold is planned before the first step (what, where, how many
// bytes, how many slots), shown as a table, then allocated once. `--dry-run` stops after the table.
//
//   MemoryPlan plan;
//   auto slots = plan.add({MemoryKind::activations, MemorySpace::device, "microbatch", bytes, limit});
//   Arena arena(device, plan);
//   std::byte* third = arena.slot(slots, 2);
#pragma once

#include "runtime/device.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace ranvier::runtime {

enum class MemoryKind { parameters, gradients, optimizer, activations, messages, workspace };
[[nodiscard]] const char* to_string(MemoryKind kind) noexcept;
inline constexpr int memory_kinds = 6;

struct MemoryItem {
  MemoryKind kind = MemoryKind::workspace;
  MemorySpace space = MemorySpace::device;
  std::string name;            ///< what people read in the table
  std::size_t slot_bytes = 0;  ///< of one slot; each starts at a multiple of 64 bytes, of 4096 if this is one
  std::size_t slots = 1;
  bool elsewhere = false;  ///< shown and counted, but allocated by whoever uses it: the arena has no slots of it
};

/// Names an item of a plan.
struct MemoryId {
  std::size_t index = 0;
};

class MemoryPlan {
 public:
  static constexpr std::size_t alignment = 64;

  MemoryId add(MemoryItem item);
  [[nodiscard]] const std::vector<MemoryItem>& items() const noexcept { return items_; }

  /// What the items take, alignment included.
  [[nodiscard]] std::size_t bytes(MemorySpace space) const;
  [[nodiscard]] std::size_t bytes(MemoryKind kind) const;
  [[nodiscard]] std::size_t bytes(MemorySpace space, MemoryKind kind) const;

  /// A table of the items with sums per kind and space, for a terminal. Items that are alike but for numbers in their
  /// names have one line, with "*" for those numbers.
  [[nodiscard]] std::string table() const;

 private:
  std::vector<MemoryItem> items_;
};

class Arena {
 public:
  /// Allocates one buffer per memory space. Throws ErrorCode::memory, with the plan's table and what would
  /// help, if the device's budget is smaller than the plan. The device outlives the arena.
  Arena(Device& device, const MemoryPlan& plan);

  /// Zero at first. Items in MemorySpace::nvme have none.
  [[nodiscard]] std::byte* slot(MemoryId item, std::size_t slot = 0) const;
  template <typename T>
  [[nodiscard]] T* slot_as(MemoryId item, std::size_t index = 0) const {
    return reinterpret_cast<T*>(slot(item, index));
  }

 private:
  std::vector<Buffer> buffers_;
  std::vector<std::byte*> first_;
  std::vector<std::size_t> stride_;
  std::vector<std::size_t> slots_;
};

/// "12.3 MiB".
[[nodiscard]] std::string format_bytes(std::size_t bytes);

}  // namespace ranvier::runtime
