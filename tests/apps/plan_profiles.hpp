// Machines for tests of ranvier-plan, with rates that distinguish small jobs in every criterion of a plan.
#pragma once

#include "apps/options/train_options.hpp"
#include "runtime/machine/machine_profile.hpp"
#include "tests/apps/flags.hpp"
#include "tests/test.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace ranvier::tests {

/// Nodes whose links are slow relative to their compute rate; `gpu`: with devices that have separate memory.
inline runtime::MachineProfile plan_profile(bool gpu) {
  runtime::MachineProfile profile;
  profile.name = gpu ? "test-gpu" : "test-cpu";
  profile.gpu = gpu;
  profile.threads = 1;
  profile.cores = 8;
  profile.device_memory = gpu ? std::size_t{2} << 30 : 0;
  profile.host_memory = std::size_t{64} << 30;
  profile.disk = std::size_t{1} << 40;
  for (const runtime::DType dtype : {runtime::DType::f32, runtime::DType::bf16}) {
    profile.peak_flops_per_second[dtype] = 1e11;
    auto& rates = profile.rates[dtype];
    rates.fill({.launch_seconds = 2e-6, .flops_per_second = 8e10, .bytes_per_second = 2e10});
    rates[static_cast<std::size_t>(runtime::WorkKind::host_copy)] = {
        .launch_seconds = 5e-6, .flops_per_second = 0, .bytes_per_second = 4e9};
  }
  profile.host_rates.fill({.launch_seconds = 1e-6, .flops_per_second = 1e10, .bytes_per_second = 5e9});
  profile.read_bytes_per_second = 2e9;
  profile.write_bytes_per_second = 1e9;
  profile.file_latency_seconds = 1e-4;
  profile.handler_seconds = 1e-6;
  profile.links.intra_node = {.latency_seconds = 3e-6, .bytes_per_second = 5e9, .node_bytes_per_second = 2e10};
  profile.links.inter_node = {.latency_seconds = 2e-5, .bytes_per_second = 5e8, .node_bytes_per_second = 5e8};
  profile.price_per_hour = 2;
  return profile;
}

/// plan_profile() of a CPU for runs, whose device memory is the host memory.
inline runtime::MachineProfile job_profile() {
  runtime::MachineProfile profile = plan_profile(false);
  profile.device_memory = profile.host_memory;
  return profile;
}

/// The flags of a line such as "--layers 4 --hidden 64".
inline std::vector<apps::GivenFlag> given_flags(const Flags& flags) {
  REQUIRE(flags.size() % 2 == 0);
  std::vector<apps::GivenFlag> all;
  for (std::size_t i = 0; i < flags.size(); i += 2) {
    REQUIRE(flags[i].starts_with("--"));
    all.push_back({flags[i].substr(2), flags[i + 1]});
  }
  return all;
}

/// A GPT that is planned in almost no time.
inline std::vector<apps::GivenFlag> small_gpt_flags(int world, int node_size, int batch_size) {
  return given_flags(
      fmt::format("--layers 4 --hidden 64 --heads 2 --vocab-size 256 --sequence-length 32 --batch-size {} --world "
                  "{} --node-size {}",
                  batch_size, world, node_size));
}

}  // namespace ranvier::tests
