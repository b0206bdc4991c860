// Memory plan of a run: MemoryPlan lists every item with kind, space and size before the first step; Arena then
// allocates all of it at once. `dry_run` stops after printing the table. One thread at a time.
//
//   MemoryPlan plan;
//   auto slots = plan.add({MemoryKind::activations, MemorySpace::device, "microbatch", bytes, limit});
//   Arena arena(device, plan);
//   std::byte* third = arena.slot(slots, 2);
#pragma once

#include "runtime/device/device.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::runtime {

enum class MemoryKind { parameters, gradients, optimizer, activations, messages, workspace };
[[nodiscard]] const char* to_string(MemoryKind kind) noexcept;
inline constexpr int memory_kinds = 6;

struct MemoryItem {
  MemoryKind kind = MemoryKind::workspace;
  MemorySpace space = MemorySpace::device;
  std::string name;  ///< name in the table
  /// Bytes per slot; slots start at multiples of 64 bytes, or of 4096 if slot_bytes is a multiple of 4096.
  std::size_t slot_bytes = 0;
  std::size_t slots = 1;
  /// Listed and counted only: the user of the item allocates it, and the arena has no slots for it.
  bool elsewhere = false;
};

/// Index of an item in its plan.
struct MemoryId {
  std::size_t index = 0;
};

class MemoryPlan {
 public:
  static constexpr std::size_t alignment = 64;

  MemoryId add(MemoryItem item);
  [[nodiscard]] const std::vector<MemoryItem>& items() const noexcept { return items_; }

  /// Bytes of all matching items, alignment included.
  [[nodiscard]] std::size_t bytes(std::optional<MemorySpace> space, std::optional<MemoryKind> kind = {}) const;
  [[nodiscard]] std::size_t bytes(MemoryKind kind) const { return bytes(std::nullopt, kind); }

  /// Table of the items with sums per kind and space, for a terminal. Items whose names differ only in numbers share
  /// one line, with "*" for those numbers.
  [[nodiscard]] std::string table() const;

 private:
  std::vector<MemoryItem> items_;
};

/// Message on a plan beyond the device's free budget, with both sizes, the plan's table and a newline at the end. None
/// if the plan fits.
[[nodiscard]] std::optional<std::string> device_memory_lack(const Device& device, const MemoryPlan& plan);

class Arena {
 public:
  /// Allocates one buffer per memory space. Throws ErrorCode::memory with device_memory_lack() if there is one. The
  /// device outlives the arena.
  Arena(Device& device, const MemoryPlan& plan);

  /// Address of a slot, zeroed at first. Items in MemorySpace::nvme have no slots.
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
