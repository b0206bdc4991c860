// Write and read rates of the file tier: complete passes over a region in transfers of 16 MiB, eight at a time.
// tests/bench/files.sh compares it with fio.
//
//   file_bench DIR[,DIR…] [mebibytes [depth [repeats [how]]]]     how: io_uring, threads, checksums
//
// One JSON line per pass. The first write allocates space on the disk and is not printed.
#include "offload/block_checksums.hpp"
#include "offload/file_tier.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/slot_pool.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/bench/bench.hpp"

#include <span>
#include <sstream>

using namespace ranvier;
using namespace ranvier::bench;
using namespace ranvier::runtime;
using offload::FileTier;

namespace {

constexpr std::size_t transfer_bytes = std::size_t{16} << 20;
constexpr std::size_t transfers_at_a_time = 8;

/// Moves every transfer of the region through a slot of the pool.
double seconds_of_pass(AsioLoop& loop, SlotPool& pool, std::size_t transfers,
                       const std::function<void(std::size_t transfer, std::byte* slot, Handler done)>& move) {
  std::size_t left = transfers;
  const auto begin = bench::Clock::now();
  for (std::size_t transfer = 0; transfer < transfers; ++transfer) {
    pool.when_free([&, transfer](const SlotPool::Slot& slot) {
      move(transfer, slot.data(), [&, slot] {
        slot.release();
        pool.serve();
        if (--left == 0) loop.stop();
      });
    });
  }
  loop.run();
  return seconds_since(begin);
}

void run(int argc, char** argv) {
  if (argc < 2) fail(ErrorCode::usage, "usage: file_bench DIR[,DIR…] [mebibytes [depth [repeats [how]]]]");
  const auto number = [&](int index, int otherwise) { return argc > index ? std::atoi(argv[index]) : otherwise; };
  offload::FileTierOptions options{.depth = number(3, 32)};
  std::istringstream directories(argv[1]);
  for (std::string directory; std::getline(directories, directory, ',');) options.directories.push_back(directory);
  const std::string_view how = argc > 5 ? argv[5] : "io_uring";
  options.uring = how != "threads";
  options.checksums = how == "checksums";
  const std::size_t transfers =
      std::max<std::size_t>(1, (static_cast<std::size_t>(number(2, 1024)) << 20) / transfer_bytes);
  const int repeats = number(4, 3);

  const auto device = make_cpu_device({});
  AsioLoop loop;
  FileTier tier(loop, options);
  std::vector<std::uint64_t> sums(offload::BlockChecksums::count(transfers * transfer_bytes));
  MemoryPlan plan;
  const SlotPool::Plan slots = SlotPool::plan(
      plan, {MemoryKind::workspace, MemorySpace::pinned, "staging", transfer_bytes, transfers_at_a_time});
  const Arena arena(*device, plan);
  tier.start(transfers * transfer_bytes, sums);
  SlotPool pool(arena, slots);
  for (std::size_t slot = 0; slot < slots.slots; ++slot)  // disks may store zeros faster
    for (std::size_t i = 0; i < transfer_bytes; ++i)
      arena.slot(slots.memory, slot)[i] = static_cast<std::byte>(i * 2654435761u >> 13);

  for (int repeat = 0; repeat <= repeats; ++repeat) {
    for (const bool writes : {true, false}) {
      if (repeat == 0 && !writes) continue;
      const double seconds =
          seconds_of_pass(loop, pool, transfers, [&](std::size_t transfer, std::byte* slot, Handler done) {
            tier.move(writes ? offload::IoKind::write : offload::IoKind::read, transfer * transfer_bytes,
                      {slot, transfer_bytes}, std::move(done));
          });
      const double bytes = static_cast<double>(transfers * transfer_bytes);
      if (repeat != 0)
        print_case(R"("bench":"file tier {}","mebibytes":{},"depth":{},"seconds":{:.3f},"mb_per_second":{:.0f},)"
                   R"("tier":"{}")",
                   writes ? "write" : "read", transfers * transfer_bytes >> 20, options.depth, seconds,
                   bytes / seconds * 1e-6, tier.description());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return status_of("file_bench", [&] { run(argc, argv); });
}
