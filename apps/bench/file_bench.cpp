#include "apps/bench/measurements.hpp"

#include "apps/program/agreement.hpp"
#include "offload/file_system.hpp"
#include "offload/file_tier.hpp"

#include <algorithm>
#include <functional>
#include <span>

namespace ranvier::apps {

namespace {

constexpr std::size_t file_bytes = std::size_t{64} << 20;  // per rank
constexpr std::size_t block_bytes = offload::Tier::block_bytes;
constexpr int blocks = 32;  // read one by one, far apart
constexpr int max_rounds = 5;

}  // namespace

FileRates time_files(BenchRank& rank, const std::vector<std::filesystem::path>& directories, double seconds) {
  FileRates rates;
  runtime::MpiSession& session = rank.session();
  offload::FileTier tier(rank.loop(), {.directories = directories, .rank = session.rank()});
  const offload::Region region = tier.reserve(runtime::MemoryKind::optimizer, "a profile's file", file_bytes);
  on_all_ranks(session, [&] {
    for (const auto& directory : directories) {
      const auto free = offload::FileSystem().free_bytes(directory);
      rates.free_bytes += static_cast<std::size_t>(std::max<std::int64_t>(0, free));
    }
    tier.start();
  });
  rates.free_bytes = static_cast<std::size_t>(session.smallest(static_cast<long long>(rates.free_bytes)));
  const auto memory = runtime::make_cpu_device({})->allocate(file_bytes, runtime::MemorySpace::host);
  const std::span bytes(memory.data(), file_bytes);
  const double on_node =
      static_cast<double>(file_bytes) * static_cast<double>(session.largest(session.local_ranks()));

  const auto rate_of = [&](const BenchRank::Work& work) {
    rank.slowest_seconds(work);  // allocates the disk space
    return on_node / rank.median_seconds(work, max_rounds, seconds / 2);
  };
  rates.write_bytes_per_second = rate_of(
      [&](const runtime::Handler& done) { tier.store(region, 0, std::span<const std::byte>(bytes), done); });
  rates.read_bytes_per_second = rate_of([&](const runtime::Handler& done) { tier.fetch(region, 0, bytes, done); });

  int left = blocks;
  std::function<void(const runtime::Handler&)> next = [&](const runtime::Handler& done) {
    const std::size_t offset = static_cast<std::size_t>(--left) * (file_bytes / blocks);
    tier.fetch(region, offset, bytes.first(block_bytes),
               left > 0 ? runtime::Handler([&, done] { next(done); }) : done);
  };
  rates.latency_seconds = rank.slowest_seconds([&](const runtime::Handler& done) { next(done); }) / blocks;
  return rates;
}

}  // namespace ranvier::apps
