#include "apps/bench/measurements.hpp"

#include "apps/bench/kernel_cases.hpp"
#include "apps/program/agreement.hpp"
#include "apps/program/data_sheet.hpp"
#include "apps/program/device_flag.hpp"
#include "offload/file_system.hpp"
#include "offload/file_tier.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/host/cores.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

namespace ranvier::apps {

namespace {

using runtime::DType;
using runtime::MachineProfile;
using runtime::StreamView;
using runtime::WorkKind;
using runtime::WorkRate;

// Shares of the total time.
constexpr double product_share = 0.5, kernel_share = 0.3, link_share = 0.1, file_share = 0.1;
constexpr double longest_link_seconds = 2;
constexpr std::size_t max_tokens = 1 << 14;
constexpr std::size_t file_bytes = std::size_t{64} << 20;  // per rank
constexpr int file_blocks = 32;                            // read one by one, far apart
constexpr int max_file_rounds = 5;
constexpr int product_passes = 3;       // passes over all cases, since machine speed varies
constexpr std::size_t alone_every = 6;  // every sixth multiplication is also timed while other ranks idle

/// Sizes of the timed work on a kind of device.
struct Scale {
  std::size_t memory_bytes;
  ProductSizes products;
  KernelSize small, large;
};
const Scale cpu_scale{.memory_bytes = std::size_t{192} << 20,
                      .products = {{16, 64, 512, 4096}, {64, 256, 1024}, 16384},
                      .small = {4, 64},
                      .large = {2048, 768}};
const Scale gpu_scale{.memory_bytes = std::size_t{2560} << 20,
                      .products = {{256, 2048, 16384}, {256, 1024, 4096}, 32768},
                      .small = {4, 64},
                      .large = {8192, 4096}};

/// Sizes for a time limit of a few seconds, too short for the largest multiplications.
const Scale quick_scale{.memory_bytes = std::size_t{32} << 20,
                        .products = {{64, 256}, {64, 128}, 1024},
                        .small = {4, 64},
                        .large = {512, 256}};
constexpr double quick_seconds = 5;

const Scale& scale_of(const runtime::Device& device, double seconds_left) {
  if (device.apart()) return gpu_scale;
  return seconds_left < quick_seconds ? quick_scale : cpu_scale;
}

/// Whether inputs of this work may be in caches. Optimizer states never are: they are used once per step.
bool may_be_cached(WorkKind kind) { return kind != WorkKind::optimizer && kind != WorkKind::optimizer_int8; }

/// Kinds of optimizer steps with weights in bf16, and types of their moments.
constexpr std::pair<WorkKind, DType> kinds_of_moments[] = {{WorkKind::optimizer, DType::bf16},
                                                           {WorkKind::optimizer_int8, DType::i8}};

std::size_t index_of(WorkKind kind) { return static_cast<std::size_t>(kind); }

WorkRate rounded_rate(const WorkRate& rate) {
  return {rounded(rate.launch_seconds), rounded(rate.flops_per_second), rounded(rate.bytes_per_second),
          rounded(rate.crowding)};
}

std::size_t physical_memory() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
}

class ProfileBench {
 public:
  ProfileBench(BenchRank& rank, std::span<const int> node_of, const ProfileRequest& request)
      : rank_(rank),
        node_of_(node_of),
        request_(request),
        device_(rank.device()),
        scale_(scale_of(device_, request.seconds)),
        stream_(device_.make_stream("profile", runtime::StreamWidth::whole)),
        leads_(std::ranges::find(node_of, node_of[static_cast<std::size_t>(rank.session().rank())]) ==
               node_of.begin() + rank.session().rank()) {
    std::map<int, int> ranks_of;
    for (const int node : node_of) beside_ = std::max(beside_, ++ranks_of[node]);
  }

  MachineProfile profile() {
    MachineProfile profile = facts();
    std::vector<DType> dtypes{DType::f32};
    const bool bf16 = !request_.gpu || has_bf16(*request_.gpu);
    if (rank_.session().smallest(bf16 ? 1 : 0) == 1) dtypes.push_back(DType::bf16);
    if (device_.apart()) dtypes.push_back(DType::f16);
    {
      WorkTimer timer(rank_, device_, scale_.memory_bytes);
      const double share = request_.seconds / static_cast<double>(dtypes.size());
      for (const DType dtype : dtypes) {
        measure_products(profile, timer, dtype, product_share * share);
        measure_kernels(profile, timer, dtype, kernel_share * share);
      }
      if (profile.rates.contains(DType::bf16)) {
        for (const auto& [kind, moments] : kinds_of_moments) {
          const double rounded = rounded_per_second(timer, *stream_, scale_, moments);
          for (auto& [dtype, rates] : profile.rates) rates[index_of(kind)].flops_per_second = rounded;
        }
      }
    }
    if (device_.apart()) profile.rates[DType::f32][index_of(WorkKind::host_copy)] = host_copies();
    measure_host(profile);
    profile.handler_seconds = rounded(handler_seconds());
    if (node_of_.size() > 1) {
      profile.links = measure_links(rank_, node_of_, std::min(longest_link_seconds, link_share * request_.seconds));
      for (runtime::Link* link : {&profile.links.intra_node, &profile.links.inter_node}) {
        for (double* figure : {&link->latency_seconds, &link->bytes_per_second, &link->node_bytes_per_second})
          *figure = rounded(*figure);
      }
    }
    if (!request_.directories.empty()) measure_files(profile);
    return profile;
  }

 private:
  [[nodiscard]] MachineProfile facts() {
    runtime::MpiSession& session = rank_.session();
    const std::size_t memory = physical_memory();
    const auto sharers = static_cast<std::size_t>(session.largest(session.local_ranks()));
    const std::set<int> nodes(node_of_.begin(), node_of_.end());
    MachineProfile profile{
        .name = request_.name.empty() ? device_.description() : request_.name,
        .source = fmt::format("measured by ranvier-bench profile with {} rank{} on {} machine{}, {} each",
                              session.ranks(), session.ranks() == 1 ? "" : "s", nodes.size(),
                              nodes.size() == 1 ? "" : "s", device_.description()),
        .gpu = device_.apart(),
        .threads = device_.apart() ? 1 : device_.threads(),
        .cores = runtime::machine_cores(),
        .device_memory = device_.apart() ? device_.budget_bytes() : memory / sharers,
        .host_memory = memory};
    if (request_.gpu) profile.peak_flops_per_second = data_sheet_rates(request_.gpu->name);
    return profile;
  }

  void measure_products(MachineProfile& profile, WorkTimer& timer, DType dtype, double seconds) {
    const auto cases = product_cases(dtype, scale_.products);
    timer.fill_with(*stream_, dtype, true);
    const std::size_t alone = crowds() ? cases.size() / alone_every : 0;
    const int passes = &scale_ == &quick_scale ? 1 : product_passes;
    const double budget = seconds / static_cast<double>(cases.size() + alone) / passes;
    std::vector<std::vector<double>> took(cases.size());
    std::vector<double> ratios;
    for (int pass = 0; pass < passes; ++pass) {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        took[i].push_back(timer.seconds_of(*stream_, cases[i].work, Caches::cold, budget));
        if (alone == 0 || (i + 1) % alone_every != 0) continue;
        timer.set_alone(true, leads_);
        ratios.push_back(took[i].back() / timer.seconds_of(*stream_, cases[i].work, Caches::cold, budget));
        timer.set_alone(false, leads_);
      }
    }
    const double crowding = ratios.empty() ? 1 : std::max(1.0, runtime::median(ratios));
    std::vector<TimedWork> timed;
    for (std::size_t i = 0; i < cases.size(); ++i)
      timed.push_back({.costs = timer.costs(*stream_, cases[i].work), .seconds = runtime::median(took[i])});
    const auto largest = std::ranges::max_element(
        timed, [](const auto& a, const auto& b) { return a.costs.front().flops < b.costs.front().flops; });
    WorkRate kind = fit_rate(timed.front(), *largest);
    // A CPU has no launch time: the overhead of small multiplications is part of their rate.
    if (!device_.apart()) kind.launch_seconds = 0;
    double peak = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const double took = timed[i].seconds;
      const double net = std::max(took - kind.launch_seconds, 0.5 * took);
      const double flops = timed[i].costs.front().flops;
      profile.products[dtype].push_back({cases[i].shape, rounded(flops / net * crowding)});
      peak = std::max(peak, flops / took);
    }
    profile.rates[dtype][index_of(WorkKind::product)] = rounded_rate(alone_rate(kind, crowding));
    if (!request_.gpu) profile.peak_flops_per_second[dtype] = rounded(peak);
  }

  void measure_kernels(MachineProfile& profile, WorkTimer& timer, DType dtype, double seconds) {
    timer.fill_with(*stream_, dtype, false);
    const runtime::Buffer tokens = token_numbers();
    const KernelTokens read{reinterpret_cast<const std::int32_t*>(tokens.data()), max_tokens};
    const auto small = kernel_cases(dtype, scale_.small, read, device_.threads());
    const auto large = kernel_cases(dtype, scale_.large, read, device_.threads());
    const double budget = seconds / static_cast<double>((crowds() ? 5 : 3) * small.size());
    for (std::size_t i = 0; i < small.size(); ++i)
      profile.rates[dtype][index_of(small[i].kind)] =
          kind_rate(timer, *stream_, {small[i].work, large[i].work, may_be_cached(small[i].kind)}, budget);
  }

  /// True if ranks of one machine share resources.
  [[nodiscard]] bool crowds() const { return !device_.apart() && beside_ > 1; }

  /// Rate of a rank on an idle machine and its crowding. `rate`: measured while all ranks compute; `times`: slowdown
  /// compared with one rank.
  [[nodiscard]] WorkRate alone_rate(WorkRate rate, double times) const {
    if (!crowds()) return rate;
    rate.flops_per_second *= times;
    rate.bytes_per_second *= times;
    const int threads = device_.threads(), busy = std::min(beside_ * threads, runtime::machine_cores());
    rate.crowding = busy > threads ? 1 + (times - 1) * (runtime::machine_cores() - threads) / (busy - threads) : 1;
    return rate;
  }

  struct KindWork {
    ProfiledWork small, large;
    bool cached = true;  ///< may_be_cached()
  };

  /// Fits a rate to three measurements: small work, and large work with arrays in caches and not in caches. On CPUs,
  /// the latter is also measured on one rank while the others idle.
  WorkRate kind_rate(WorkTimer& timer, StreamView stream, const KindWork& work, double budget) {
    const auto seconds_of_large = [&] {
      const double cold = timer.seconds_of(stream, work.large, Caches::cold, budget);
      if (!work.cached) return cold;
      return (timer.seconds_of(stream, work.large, Caches::warm, budget) + cold) / 2;
    };
    const TimedWork large{.costs = timer.costs(stream, work.large), .seconds = seconds_of_large()};
    double crowding = 1;
    if (crowds()) {
      timer.set_alone(true, leads_);
      crowding = std::max(1.0, large.seconds / seconds_of_large());
      timer.set_alone(false, leads_);
    }
    const TimedWork small{.costs = timer.costs(stream, work.small),
                          .seconds = timer.seconds_of(stream, work.small, Caches::warm, budget)};
    return rounded_rate(alone_rate(fit_rate(small, large), crowding));
  }

  /// Elements per second with stochastically rounded weights.
  double rounded_per_second(WorkTimer& timer, StreamView stream, const Scale& scale, DType moments) {
    timer.fill_with(stream, DType::bf16, false);
    const auto step = [&](const KernelSize& size) {
      return optimizer_step(DType::bf16, size, DType::bf16, moments);
    };
    return kind_rate(timer, stream, {step(scale.small), step(scale.large), false}, small_budget()).flops_per_second;
  }

  /// Input tokens in device memory.
  runtime::Buffer token_numbers() {
    constexpr std::size_t bytes = max_tokens * sizeof(std::int32_t);
    const auto host = device_.allocate(bytes, runtime::MemorySpace::pinned);
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < max_tokens; ++i) {
      state = state * 1664525u + 1013904223u;
      reinterpret_cast<std::int32_t*>(host.data())[i] =
          static_cast<std::int32_t>((state >> 8) % KernelTokens::vocab_size);
    }
    runtime::Buffer tokens =
        device_.allocate(bytes, device_.apart() ? runtime::MemorySpace::device : runtime::MemorySpace::host);
    runtime::copy(*stream_, tokens.data(), host.data(), bytes);
    stream_->synchronize();
    return tokens;
  }

  /// Copy rate between pinned and GPU memory, mean of both directions.
  WorkRate host_copies() {
    constexpr std::size_t small = 4096, large = std::size_t{64} << 20;
    WorkTimer timer(rank_, device_, large);
    timer.fill_with(*stream_, DType::f32, true);
    const auto pinned = device_.allocate(large, runtime::MemorySpace::pinned);
    const auto copies = [&](std::size_t bytes) {
      return ProfiledWork{bytes, [&pinned, bytes](StreamView stream, std::byte* at) {
                            runtime::copy(stream, pinned.data(), at, bytes);
                            runtime::copy(stream, at, pinned.data(), bytes);
                          }};
    };
    return kind_rate(timer, *stream_, {copies(small), copies(large)}, small_budget());
  }

  /// Host rates: additions on one thread; AdamW by type of its states on all threads of a rank.
  void measure_host(MachineProfile& profile) {
    const auto host = device_.make_host_device(device_.apart() ? runtime::machine_cores() : device_.threads());
    if (!host) return;
    const Scale& scale = device_.apart() ? cpu_scale : scale_;
    WorkTimer timer(rank_, *host, scale.memory_bytes);
    const auto narrow = host->make_stream("additions", runtime::StreamWidth::one);
    const auto whole = host->make_stream("step", runtime::StreamWidth::whole);
    timer.fill_with(*whole, DType::f32, false);
    const auto measure = [&](WorkKind kind, StreamView stream, const auto& work_of) {
      profile.host_rates[index_of(kind)] = kind_rate(
          timer, stream, {work_of(scale.small), work_of(scale.large), may_be_cached(kind)}, small_budget());
    };
    measure(WorkKind::elementwise, *narrow, [](const KernelSize& size) { return additions(DType::f32, size); });
    measure(WorkKind::optimizer, *whole,
            [](const KernelSize& size) { return optimizer_step(DType::f32, size, DType::f32, DType::f32); });
    measure(WorkKind::optimizer_int8, *whole,
            [](const KernelSize& size) { return optimizer_step(DType::f32, size, DType::f32, DType::i8); });
    for (const auto& [kind, moments] : kinds_of_moments)
      profile.host_rates[index_of(kind)].flops_per_second = rounded_per_second(timer, *whole, scale, moments);
  }

  /// Time per handler: handlers that post their successor.
  double handler_seconds() {
    constexpr int handlers = 20000, rounds = 5;
    int left = 0;
    std::function<void(const runtime::Handler&)> next = [&](const runtime::Handler& done) {
      rank_.loop().post([&, done] { --left > 0 ? next(done) : done(); });
    };
    const auto all = [&](const runtime::Handler& done) {
      left = handlers;
      next(done);
    };
    return rank_.median_seconds(all, rounds, std::numeric_limits<double>::infinity()) / handlers;
  }

  /// Times file access as in the nvme tier. Each rank has its own files in every directory and removes them. Throws
  /// ErrorCode::io if a directory cannot be used or has too little space.
  void measure_files(MachineProfile& profile) {
    runtime::MpiSession& session = rank_.session();
    offload::FileTier tier(rank_.loop(), {.directories = request_.directories, .rank = session.rank()});
    on_all_ranks(session, [&] {
      for (const auto& directory : request_.directories) {
        const auto free = offload::FileSystem().free_bytes(directory);
        profile.disk += static_cast<std::size_t>(std::max<std::int64_t>(0, free));  // before the first write
      }
      tier.start(file_bytes);
    });
    profile.disk = static_cast<std::size_t>(session.smallest(static_cast<long long>(profile.disk)));
    const auto memory = runtime::make_cpu_device({})->allocate(file_bytes, runtime::MemorySpace::host);
    const std::span bytes(memory.data(), file_bytes);
    const double on_node =
        static_cast<double>(file_bytes) * static_cast<double>(session.largest(session.local_ranks()));

    const auto rate_of = [&](offload::IoKind kind) {
      const BenchRank::Work work = [&](const runtime::Handler& done) { tier.move(kind, 0, bytes, done); };
      rank_.slowest_seconds(work);  // allocates the disk space
      return rounded(on_node / rank_.median_seconds(work, max_file_rounds, file_share * request_.seconds / 2));
    };
    profile.write_bytes_per_second = rate_of(offload::IoKind::write);
    profile.read_bytes_per_second = rate_of(offload::IoKind::read);

    int left = file_blocks;
    std::function<void(const runtime::Handler&)> next = [&](const runtime::Handler& done) {
      const std::size_t offset = static_cast<std::size_t>(--left) * (file_bytes / file_blocks);
      tier.move(offload::IoKind::read, offset, bytes.first(offload::Tier::block_bytes),
                left > 0 ? runtime::Handler([&, done] { next(done); }) : done);
    };
    profile.file_latency_seconds =
        rounded(rank_.slowest_seconds([&](const runtime::Handler& done) { next(done); }) / file_blocks);
  }

  [[nodiscard]] double small_budget() const { return 0.01 * request_.seconds; }

  BenchRank& rank_;
  std::span<const int> node_of_;
  const ProfileRequest& request_;
  runtime::Device& device_;
  const Scale& scale_;
  std::unique_ptr<runtime::Stream> stream_;
  bool leads_;      // leads the ranks of its node
  int beside_ = 0;  // largest number of ranks on a node
};

}  // namespace

MachineProfile measure_profile(BenchRank& rank, std::span<const int> node_of, const ProfileRequest& request) {
  return ProfileBench(rank, node_of, request).profile();
}

}  // namespace ranvier::apps
