// ranvier-bench: measures links between the ranks of a job, collectives on them, and profiles of machines.
#include "apps/bench/bench_options.hpp"
#include "apps/bench/bench_rank.hpp"
#include "apps/bench/measurements.hpp"
#include "apps/program/agreement.hpp"
#include "apps/program/print_error.hpp"
#include "apps/program/profile_search_path.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/files/atomic_file.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>

namespace {

using namespace ranvier;
using apps::BenchOptions;
using collectives::Links;
using runtime::MpiSession;

constexpr const char* program = "ranvier-bench";
constexpr double longest_link_seconds = 2;

std::vector<int> nodes_of(const MpiSession& session, const BenchOptions& options) {
  if (options.node_size == 0) return session.nodes();
  std::vector<int> nodes;
  for (int rank = 0; rank < session.ranks(); ++rank) nodes.push_back(rank / options.node_size);
  return nodes;
}

/// Checks everything that can be refused before measurements.
void check(MpiSession& session, const BenchOptions& options, std::span<const int> node_of) {
  if (options.measures_links() && session.ranks() == 1) {
    apps::reject("a single rank has no links to measure; use mpirun -n 2 or more");
  }
  if (!options.write_links.empty() && session.rank() == 0) {
    runtime::check_replaced(options.write_links, "--write-links", options.overwrite);
    runtime::check_writable(options.write_links, "--write-links");
  }
  if (options.given_links) collectives::require_classes(*options.given_links, node_of, "--links " + options.links);
}

void print(const char* of_class, const collectives::Link& link) {
  if (!link.measured()) return;
  fmt::print(R"({{"links":"{}","latency_seconds":{:.3g},"bytes_per_second":{:.4g},"node_bytes_per_second":{:.4g}}})"
             "\n",
             of_class, link.latency_seconds, link.bytes_per_second, link.node_bytes_per_second);
  std::fflush(stdout);
}

/// Prints measured and unmeasured links; writes the file. One rank calls.
void report(const Links& links, const std::string& path, std::size_t nodes) {
  print("intra_node", links.intra_node);
  print("inter_node", links.inter_node);
  if (!links.inter_node.measured()) {
    fmt::print(stderr, "{}: inter_node not measured: all ranks are on one node; use several nodes\n", program);
  }
  if (!links.intra_node.measured()) {
    fmt::print(stderr, "{}: intra_node not measured: each of {} nodes has one rank; use more ranks per node\n",
               program, nodes);
  }
  if (path.empty()) return;
  runtime::write_file(path, collectives::to_json(links));
}

/// Prints the error and ends all ranks, while buffers of messages in flight still exist.
[[noreturn]] void end_all(MpiSession& session, const std::exception& error) {
  apps::print_error(program, error.what());
  session.abort(exit_code(error_code(error)));
}

/// --threads, or this rank's share of its machine's cores.
int device_threads(const MpiSession& session, const BenchOptions& options) {
  if (!options.profiles()) return 1;
  if (options.threads > 0) return options.threads;
  return session.cores();
}

constexpr const char* on_stdout = "-";

/// Path of the profile, checked before measurements. The default file of this host is replaced.
std::string profile_path(const MpiSession& session, const BenchOptions& options) {
  if (options.write_profile == on_stdout) return on_stdout;
  std::filesystem::path path = options.write_profile;
  if (path.empty()) {
    const bool gpu = options.device == apps::DeviceFlag::cuda;
    path =
        apps::profile_file(apps::profile_search_path(), {.gpu = gpu, .threads = device_threads(session, options)});
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error)
      fail(ErrorCode::io,
           "cannot create profile folder: {}: {}; use --write-profile FILE, or --write-profile - for stdout",
           path.parent_path().string(), error.message());
  } else {
    runtime::check_replaced(path, "--write-profile", options.overwrite);
  }
  runtime::check_writable(path, "--write-profile");
  return path.string();
}

void profile(apps::BenchRank& rank, const BenchOptions& options, std::span<const int> node_of) {
  std::string path;
  apps::on_rank_0(rank.session(), [&] { path = profile_path(rank.session(), options); });
  std::optional<runtime::CudaGpu> gpu;
  if constexpr (runtime::with_cuda) {
    apps::on_all_ranks(rank.session(), [&] {
      if (options.device == apps::DeviceFlag::cuda)
        gpu = runtime::cuda_gpu(apps::gpu_of_rank(rank.session(), options.gpu).ordinal);
    });
  }
  constexpr double share = 0.75;  // single measurements exceed their time limit
  const std::string text = to_json(apps::measure_profile(
      rank, node_of,
      {.name = options.profile_name, .directories = options.nvme, .gpu = gpu, .seconds = share * options.seconds}));
  apps::on_rank_0(rank.session(), [&] {
    if (path == on_stdout) {
      fmt::print("{}", text);
      return;
    }
    runtime::write_file(path, text);
    fmt::print("profile: {}\n", path);
    if (!options.write_profile.empty()) return;
    fmt::print("ranvier-train and ranvier-plan use this profile without --profile\n");
    if (const std::string named = apps::profile_search_path().named; !named.empty())
      fmt::print("but {} is set and has precedence: {}\n", apps::profile_variable, named);
  });
}

void measure(apps::BenchRank& rank, const BenchOptions& options, std::span<const int> node_of) {
  if (options.profiles()) return profile(rank, options, node_of);
  MpiSession& session = rank.session();
  std::optional<Links> links = options.given_links;
  if (options.measures_links()) {
    const double share = options.collectives.empty() ? 1.0 : 0.25;
    links = apps::measure_links(rank, node_of, std::min(longest_link_seconds, share * options.seconds));
    apps::on_rank_0(session, [&] {
      report(*links, options.write_links, std::set<int>(node_of.begin(), node_of.end()).size());
    });
  }
  if (!options.collectives.empty()) apps::time_collectives(rank, options, node_of, links);
}

void compare_options(MpiSession& session, const BenchOptions& options) {
  const auto hash = static_cast<long long>(options_hash(options) >> 1);
  if (session.smallest(hash) == session.largest(hash)) return;
  apps::on_all_ranks(session,
                     [] { apps::reject("options differ between ranks; use the same flags on every rank"); });
}

}  // namespace

int main(int argc, char** argv) {
  // Both outlive the printing of an error.
  std::optional<MpiSession> session;
  std::optional<apps::BenchRank> rank;
  try {
    session.emplace(argc, argv);
    BenchOptions options;
    apps::on_all_ranks(*session, [&] { options = apps::parse_bench_options(argc, argv); });
    compare_options(*session, options);
    if (options.info.any()) {
      if (session->rank() == 0)
        fmt::print("{}\n", apps::answer(options.info, apps::bench_manual(), runtime::mpi_library()));
      return EXIT_SUCCESS;
    }
    const std::vector<int> node_of = nodes_of(*session, options);
    apps::on_all_ranks(*session, [&] { check(*session, options, node_of); });
    std::unique_ptr<runtime::Device> device;
    apps::on_all_ranks(*session, [&] {
      const bool on_gpu = options.device == apps::DeviceFlag::cuda;
      device = apps::make_device(options.device,
                                 on_gpu ? apps::gpu_of_rank(*session, options.gpu) : runtime::CudaDeviceOptions(),
                                 {.threads = device_threads(*session, options)});
    });
    rank.emplace(*session, std::move(device), [&](const std::exception& error) { end_all(*session, error); });
    measure(*rank, options, node_of);
    return EXIT_SUCCESS;
  } catch (const apps::FailedTogether& failure) {
    if (failure.error) apps::print_error(program, failure.error->what());
    return exit_code(failure.code);
  } catch (const std::exception& error) {
    if (session) end_all(*session, error);
    apps::print_error(program, error.what());
    return exit_code(error_code(error));
  }
}
