#include "runtime/device/slot_pool.hpp"
#include "tests/test.hpp"

#include <fmt/core.h>

using namespace ranvier;
using namespace ranvier::runtime;
using namespace ranvier::tests;

TEST_CASE("bytes are printed in the largest unit that leaves an integer digit") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.0 KiB");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes((1 << 20) - 1) == "1.0 MiB");
  CHECK(format_bytes(std::size_t{12} << 30) == "12.0 GiB");
  CHECK(format_bytes(SIZE_MAX) == "16.0 EiB");
}

TEST_CASE("an arena allocates exactly its plan, per space") {
  const auto device = make_inline_device();
  MemoryPlan plan;
  plan.add({MemoryKind::parameters, MemorySpace::device, "wte", 100, 1});
  plan.add({MemoryKind::activations, MemorySpace::device, "microbatch", 65, 3});
  plan.add({MemoryKind::gradients, MemorySpace::device, "large", (2 << 20) + 1, 1});
  plan.add({MemoryKind::messages, MemorySpace::pinned, "staging", 1000, 2});
  plan.add({MemoryKind::workspace, MemorySpace::device, "none", 0, 4});
  plan.add({MemoryKind::workspace, MemorySpace::device, "no slots", 64, 0});
  const std::size_t large = (2 << 20) + 4096;  // full pages
  CHECK(plan.bytes(MemorySpace::device) == 128 + 3 * 128 + large);
  CHECK(plan.bytes(MemorySpace::pinned) == 2 * 1024);
  CHECK(plan.bytes(MemorySpace::host) == 0);
  CHECK(plan.bytes(MemoryKind::activations) == 3 * 128);
  CHECK(plan.bytes(MemorySpace::pinned, MemoryKind::activations) == 0);
  CHECK(plan.bytes(MemorySpace::device, MemoryKind::gradients) == large);
  const Arena arena(*device, plan);
  CHECK(device->used_bytes() == plan.bytes(MemorySpace::device));
}

TEST_CASE("memory that is allocated elsewhere is in the table and its sums, and has no slots in the arena") {
  const auto device = make_inline_device({.budget_bytes = 8192});
  MemoryPlan plan;
  const MemoryId scratch = plan.add({.kind = MemoryKind::workspace, .slot_bytes = 4096, .elsewhere = true});
  const MemoryId own = plan.add({.kind = MemoryKind::workspace, .name = "own", .slot_bytes = 4096});
  CHECK(plan.bytes(MemorySpace::device) == 8192);
  const Arena arena(*device, plan);
  CHECK(device->used_bytes() == 4096);
  CHECK(arena.slot(own) != nullptr);
  CHECK_THROWS_AS((void)arena.slot(scratch), Error);
  plan.add({.kind = MemoryKind::workspace, .name = "more", .slot_bytes = 1, .elsewhere = true});
  const auto fresh = make_inline_device({.budget_bytes = 8192});
  CHECK_THROWS_AS(Arena(*fresh, plan), Error);
}

TEST_CASE("slots are zero, aligned, apart from each other and in bounds; large items start on a page") {
  const auto device = make_inline_device();
  MemoryPlan plan;
  std::vector<MemoryId> ids;
  const std::vector<std::size_t> sizes = {1, 100, 3 << 20, 64, 65, (2 << 20) + 5, 7};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    ids.push_back(plan.add({MemoryKind::workspace, i % 3 == 1 ? MemorySpace::host : MemorySpace::device, "item",
                            sizes[i], 1 + i % 2}));
  const Arena arena(*device, plan);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    for (std::size_t slot = 0; slot < 1 + i % 2; ++slot) {
      std::byte* data = arena.slot(ids[i], slot);
      CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
      if (slot == 0 && sizes[i] >= 2 << 20) CHECK(reinterpret_cast<std::uintptr_t>(data) % 4096 == 0);
      for (std::size_t at = 0; at < sizes[i]; at += 4096) CHECK(data[at] == std::byte{0});
      CHECK(data[sizes[i] - 1] == std::byte{0});  // not overwritten by an earlier slot
      std::memset(data, static_cast<int>(1 + i), sizes[i]);
    }
  for (std::size_t i = 0; i < sizes.size(); ++i)  // nor by a later one
    for (std::size_t slot = 0; slot < 1 + i % 2; ++slot)
      CHECK(arena.slot(ids[i], slot)[sizes[i] - 1] == static_cast<std::byte>(1 + i));
}

TEST_CASE("items whose slots are full pages start on one, however small") {
  const auto device = make_inline_device();
  MemoryPlan plan;
  plan.add({MemoryKind::workspace, MemorySpace::pinned, "odd", 65, 1});
  const MemoryId paged = plan.add({MemoryKind::workspace, MemorySpace::pinned, "staging", 2 * 4096, 3});
  CHECK(plan.bytes(MemorySpace::pinned) == 128 + 6 * 4096);
  const Arena arena(*device, plan);
  for (std::size_t slot = 0; slot < 3; ++slot)
    CHECK(reinterpret_cast<std::uintptr_t>(arena.slot(paged, slot)) % 4096 == 0);
}

TEST_CASE("an unplanned slot is refused") {
  const auto device = make_inline_device();
  MemoryPlan plan;
  const MemoryId id = plan.add({MemoryKind::workspace, MemorySpace::device, "pair", 8, 2});
  const Arena arena(*device, plan);
  CHECK(arena.slot_as<float>(id, 1) == reinterpret_cast<float*>(arena.slot(id, 0) + 64));
  CHECK_THROWS_AS((void)arena.slot(id, 2), Error);
  CHECK_THROWS_AS((void)arena.slot({1}), Error);
}

TEST_CASE("a plan beyond the budget is refused with its table and a remedy") {
  const auto device = make_inline_device({.threads = 1, .budget_bytes = std::size_t{3} << 20});
  MemoryPlan plan;
  plan.add({MemoryKind::activations, MemorySpace::device, "layer inputs", std::size_t{1} << 20, 4});
  const Error error = error_of([&] { const Arena arena(*device, plan); });
  CHECK(error.code() == ErrorCode::memory);
  for (const char* part : {"layer inputs", "4.0 MiB", "3.0 MiB", "raise `device_memory`"}) CHECK(says(error, part));
  CHECK(std::string(error.what()).starts_with("the plan needs 4.0 MiB of device memory, but 3.0 MiB"));
  CHECK(device->used_bytes() == 0);
}

TEST_CASE("a plan that exceeds the system's memory is refused with its table") {
  const auto device = make_inline_device();
  MemoryPlan plan;
  plan.add({MemoryKind::messages, MemorySpace::pinned, "more than there is", std::size_t{1} << 48, 1});
  const Error error = error_of([&] { const Arena arena(*device, plan); });
  CHECK(says(error, ErrorCode::memory, "more than there is", "the system refused"));
}

TEST_CASE("the table shows every item and the sums, in aligned columns") {
  MemoryPlan plan;
  plan.add({MemoryKind::messages, MemorySpace::pinned, "staging", 2048, 2});
  plan.add({MemoryKind::parameters, MemorySpace::device, "weights", 1536, 1});
  plan.add({MemoryKind::parameters, MemorySpace::device, "working copy", 1024, 1});
  const std::string expected =
      "kind        what          where   slots     each    bytes\n"
      "parameters  weights       device      1  1.5 KiB  1.5 KiB\n"
      "parameters  working copy  device      1  1.0 KiB  1.0 KiB\n"
      "messages    staging       pinned      2  2.0 KiB  4.0 KiB\n"
      "sum         parameters    device                  2.5 KiB\n"
      "total                     device                  2.5 KiB\n"
      "sum         messages      pinned                  4.0 KiB\n"
      "total                     pinned                  4.0 KiB\n";
  CHECK(plan.table() == expected);
}

TEST_CASE("items that differ only in numbers share a line of the table") {
  MemoryPlan plan;
  for (int unit = 0; unit < 12; ++unit)
    plan.add({MemoryKind::parameters, MemorySpace::device, fmt::format("h.{}.mlp.3 fp32", unit), 1024, 2});
  plan.add({MemoryKind::parameters, MemorySpace::device, "h.12.mlp.3 fp32", 2048, 2});
  plan.add({MemoryKind::gradients, MemorySpace::device, "h.12.mlp.3 fp32", 1024, 2});
  plan.add({MemoryKind::gradients, MemorySpace::device, "h.12.mlp", 1024, 2});
  const std::string expected =
      "kind        what             where   slots     each     bytes\n"
      "parameters  h.*.mlp.3 fp32   device     24  1.0 KiB  24.0 KiB\n"
      "parameters  h.12.mlp.3 fp32  device      2  2.0 KiB   4.0 KiB\n"
      "gradients   h.12.mlp.3 fp32  device      2  1.0 KiB   2.0 KiB\n"
      "gradients   h.12.mlp         device      2  1.0 KiB   2.0 KiB\n"
      "sum         parameters       device                  28.0 KiB\n"
      "sum         gradients        device                   4.0 KiB\n"
      "total                        device                  32.0 KiB\n";
  CHECK(plan.table() == expected);
}

TEST_CASE("an item beyond any address space is refused") {
  MemoryPlan plan;
  CHECK_THROWS_AS(plan.add({MemoryKind::activations, MemorySpace::device, "huge", SIZE_MAX / 4, 3}), Error);
}

TEST_CASE("slots of a pool go to their users in order, and return by release or with the last copy") {
  const auto device = make_inline_device();
  MemoryPlan memory;
  const SlotPool::Plan plan =
      SlotPool::plan(memory, {MemoryKind::workspace, MemorySpace::device, "buffers", 64, 2});
  const Arena arena(*device, memory);
  std::optional<SlotPool> slots(std::in_place, arena, plan);
  const SlotPool::Slot first = slots->take(), copy = first;
  std::optional<SlotPool::Slot> second = slots->take();
  CHECK(first.data() != second->data());
  CHECK(first.data(16) == first.data() + 16);
  CHECK_FALSE(slots->has_free());

  std::vector<int> served;
  std::vector<SlotPool::Slot> used;
  for (int user = 0; user < 3; ++user)
    slots->when_free([&, user](const SlotPool::Slot& slot) {
      served.push_back(user);
      used.push_back(slot);
    });
  CHECK(served.empty());
  const std::byte* const released = first.data();
  first.release();
  CHECK(copy.data() == nullptr);
  CHECK(copy.data(16) == nullptr);
  copy.release();  // has no effect
  CHECK(served.empty());
  slots->serve();
  CHECK(served == std::vector{0});
  CHECK(used[0].data() == released);
  second.reset();
  slots->serve();
  CHECK(served == std::vector{0, 1});
  used[1].release();
  slots->serve();
  CHECK(served == std::vector{0, 1, 2});
  CHECK_FALSE(slots->has_free());

  slots.reset();
  CHECK(used[2].data() != nullptr);
  used.clear();  // slots may outlive their pool
  CHECK(SlotPool(arena, {}).has_free() == false);

  std::array<std::byte, 2> elsewhere{};
  SlotPool given(std::array{&elsewhere[0], &elsewhere[1]});
  CHECK(given.take().data() == &elsewhere[0]);
}
