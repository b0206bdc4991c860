// Properties of kinds of GPUs: rates on their data sheets, and the precision that they compute in by default.
#include "apps/program/data_sheet.hpp"
#include "apps/program/device_flag.hpp"

#include "tests/apps/plan_profiles.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using apps::data_sheet_rates;
using apps::default_precision;
using runtime::DType;

TEST_CASE("GPUs are found by their drivers' names, and by no others") {
  for (const auto& [gpu, half, fp32] : {std::tuple{"NVIDIA A100-SXM4-40GB", 312e12, 19.5e12},
                                        {"NVIDIA A100 80GB PCIe", 312e12, 19.5e12},
                                        {"NVIDIA H100 80GB HBM3", 989.4e12, 66.9e12},
                                        {"NVIDIA H100 PCIe", 756.5e12, 51.2e12},
                                        {"NVIDIA GH200 144G HBM3e", 989.4e12, 66.9e12},
                                        {"NVIDIA L40S", 362.05e12, 91.6e12},
                                        {"NVIDIA GeForce RTX 4090", 165.2e12, 82.6e12}}) {
    CAPTURE(gpu);
    const auto rates = data_sheet_rates(gpu);
    REQUIRE(rates.size() == 3);
    CHECK(rates.at(DType::bf16) == doctest::Approx(half));
    CHECK(rates.at(DType::f16) == doctest::Approx(half));
    CHECK(rates.at(DType::f32) == doctest::Approx(fp32));
  }
  for (const char* gpu : {"Tesla V100-SXM2-16GB", "Tesla T4"}) {
    CAPTURE(gpu);
    CHECK(data_sheet_rates(gpu).contains(DType::f16));
    CHECK_FALSE(data_sheet_rates(gpu).contains(DType::bf16));
  }
  for (const char* gpu : {"", "emulated", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA GeForce RTX 4090 Laptop GPU",
                          "NVIDIA GeForce RTX 4090 D", "NVIDIA A1000"}) {
    CAPTURE(gpu);
    CHECK(data_sheet_rates(gpu).empty());
  }
}

TEST_CASE("shipped profiles have the peaks of the data sheets") {
  std::size_t compared = 0;
  for (const std::string& name : runtime::shipped_profiles()) {
    CAPTURE(name);
    const auto profile = runtime::read_machine_profile(name);
    for (const auto& [prefix, gpu] : {std::pair{"a100-", "NVIDIA A100-SXM4-40GB"},
                                      {"h100-sxm", "NVIDIA H100 80GB HBM3"},
                                      {"h200-sxm", "NVIDIA H200"},
                                      {"v100-", "Tesla V100-SXM2-16GB"}}) {
      if (!name.starts_with(prefix)) continue;
      CHECK(profile.peak_flops_per_second == data_sheet_rates(gpu));
      ++compared;
    }
  }
  CHECK(compared == runtime::shipped_profiles().size());
}

TEST_CASE("without --precision a CPU computes in fp32, and a GPU in bf16, or in fp16 if it has no bf16") {
  CHECK(default_precision(false, false) == DType::f32);
  CHECK(default_precision(true, true) == DType::bf16);
  CHECK(default_precision(true, false) == DType::f16);
  CHECK(apps::has_bf16({.name = "", .compute_capability = 80}));
  CHECK_FALSE(apps::has_bf16({.name = "", .compute_capability = 75}));
  CHECK(default_precision(tests::plan_profile(false)) == DType::f32);
  CHECK(default_precision(tests::plan_profile(true)) == DType::bf16);
  CHECK(default_precision(runtime::read_machine_profile("a100-40g-p4d")) == DType::bf16);
  CHECK(default_precision(runtime::read_machine_profile("v100-32g-p3dn")) == DType::f16);
  CHECK(default_precision(apps::DeviceFlag::cpu, {}) == DType::f32);
}
