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
  on_all_ranks(session, [&] {
    for (const auto& directory : directories) {
      const auto free = offload::FileSystem().free_bytes(directory);
      rates.free_bytes += static_cast<std::size_t>(std::max<std::int64_t>(0, free));
    }
    tier.start(file_bytes);
  });
  rates.free_bytes = static_cast<std::size_t>(session.smallest(static_cast<long long>(rates.free_bytes)));
  const auto memory = runtime::make_cpu_device({})->allocate(file_bytes, runtime::MemorySpace::host);
  const std::span bytes(memory.data(), file_bytes);
  const double on_node =
      static_cast<double>(file_bytes) * static_cast<double>(session.largest(session.local_ranks()));

  const auto rate_of = [&](offload::IoKind kind) {
    const BenchRank::Work work = [&](const runtime::Handler& done) { tier.move(kind, 0, bytes, done); };
    rank.slowest_seconds(work);  // allocates the disk space
    return on_node / rank.median_seconds(work, max_rounds, seconds / 2);
  };
  rates.write_bytes_per_second = rate_of(offload::IoKind::write);
  rates.read_bytes_per_second = rate_of(offload::IoKind::read);

  int left = blocks;
  std::function<void(const runtime::Handler&)> next = [&](const runtime::Handler& done) {
    const std::size_t offset = static_cast<std::size_t>(--left) * (file_bytes / blocks);
    tier.move(offload::IoKind::read, offset, bytes.first(block_bytes),
              left > 0 ? runtime::Handler([&, done] { next(done); }) : done);
  };
  rates.latency_seconds = rank.slowest_seconds([&](const runtime::Handler& done) { next(done); }) / blocks;
  return rates;
}

}  // namespace ranvier::apps
