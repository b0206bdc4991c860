#include "runtime/machine/machine_profile.hpp"

#include "runtime/base/error.hpp"
#include "tests/test.hpp"

#include <chrono>

using namespace ranvier;
using namespace ranvier::runtime;
using namespace ranvier::tests;

namespace {

constexpr auto kind_of = [](WorkKind kind) { return static_cast<std::size_t>(kind); };

/// Every field has a value that is not its default.
MachineProfile whole_profile() {
  MachineProfile profile{.name = "a \"quoted\" name",
                         .source = "measured\nby a test, in µs \\",
                         .gpu = true,
                         .threads = 3,
                         .cores = 96,
                         .device_memory = 42949672960,
                         .host_memory = 1ull << 40,
                         .disk = 8000000000001,
                         .read_bytes_per_second = 3.33333333e9,
                         .write_bytes_per_second = 2e9,
                         .file_latency_seconds = 1e-4,
                         .handler_seconds = 1.5e-6,
                         .crowding = 1.25,
                         .links = {{3e-6, 1.2e11, 9.6e11}, {2.5e-5, 1.42857143e9, 5e10}},
                         .price_per_hour = 4.1};
  profile.peak_flops_per_second = {{DType::f32, 1.95e13}, {DType::bf16, 3.12e14}};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (std::size_t kind = 0; kind < work_kinds; ++kind) {
      const auto x = static_cast<double>(kind + 1);
      profile.rates[dtype][kind] = {1e-6 * x, 1e12 / x, 1e11 * x, 1 + 0.25 * x};
    }
  profile.rates[DType::bf16][kind_of(WorkKind::norm)] = {};
  profile.rates[DType::bf16][kind_of(WorkKind::dropout)] = {0, 0, 7};
  profile.products[DType::bf16] = {{{512, 768, 3072}, 1e14}, {{1, 2, 3}, 0.25}};
  profile.host_rates[kind_of(WorkKind::optimizer)] = {1e-5, 0, 2e10};
  return profile;
}

/// A profile with the required entries only, followed by `more`.
std::string small(const std::string& more = "") {
  return R"({"name": "x", "source": "y", "gpu": false, "cores": 2, "device_memory": 1000, "host_memory": 1000,
           "rates": {"fp32": {"product": {"flops_per_second": 1e9}, "elementwise": {"bytes_per_second": 1e8}}})" +
         more + "}";
}

ranvier::Error refusal(const std::string& json) {
  const auto error = error_of([&] { (void)parse_machine_profile(json, "--profile here.json"); });
  CHECK(error.code() == ErrorCode::usage);
  CHECK(std::string_view(error.what()).starts_with("--profile here.json: "));
  return error;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  return text.replace(text.find(from), from.size(), to);
}

double seconds_of(const ProfileCosts& costs, const WorkCost& cost) { return seconds(costs.duration(cost)); }

/// Measured matrix multiplications whose rates are powers of their sizes.
MachineProfile measured_products() {
  MachineProfile profile = parse_machine_profile(small(), "a test");
  for (const std::size_t m : {16, 256, 4096})
    for (const std::size_t n : {64, 1024})
      for (const std::size_t k : {64, 1024}) {
        const double rate = 1e9 * std::pow(static_cast<double>(m * n * k), 0.2);
        profile.products[DType::f32].push_back({{m, n, k}, rate});
      }
  return profile;
}

}  // namespace

TEST_CASE("a profile reads back as written") {
  const MachineProfile profile = whole_profile();
  const std::string written = to_json(profile);
  INFO(written);
  CHECK(to_json(parse_machine_profile(written, "a test")) == written);
  const MachineProfile read = parse_machine_profile(written, "a test");
  CHECK(read.name == profile.name);
  CHECK(read.source == profile.source);
  CHECK(read.gpu);
  CHECK(std::pair(read.threads, read.cores) == std::pair(3, 96));
  CHECK(std::pair(read.device_memory, read.host_memory) == std::pair(profile.device_memory, profile.host_memory));
  CHECK(read.disk == profile.disk);
  CHECK(read.products.at(DType::bf16)[0].shape == ProductShape{512, 768, 3072});
  CHECK(read.rates.at(DType::bf16)[kind_of(WorkKind::norm)] == WorkRate{});
  CHECK(read.rates.at(DType::f32)[kind_of(WorkKind::norm)].bytes_per_second == doctest::Approx(3e11));
  CHECK(read.links.inter_node.latency_seconds == doctest::Approx(2.5e-5));
  CHECK(read.file_latency_seconds == doctest::Approx(1e-4));
  const TemporaryFolder folder;
  CHECK(read_machine_profile(folder.write("here.json", written).string()) == read);
  const MachineProfile least = parse_machine_profile(small(), "a test");
  CHECK(parse_machine_profile(to_json(least), "a test") == least);
  CHECK(least.threads == 1);
  const MachineProfile zero = parse_machine_profile(small(R"(, "price_per_hour": -0.0)"), "a test");
  CHECK(zero == least);
  CHECK_FALSE(std::signbit(zero.price_per_hour));
  CHECK_FALSE(least.links.inter_node.measured());
}

TEST_CASE("an incomplete profile is refused with the name of the missing entry") {
  const std::string all = small();
  for (const std::string key : {"name", "source", "gpu", "cores", "device_memory", "host_memory"}) {
    const std::size_t begin = all.find("\"" + key), end = all.find_first_of(",", begin);
    CHECK(says(refusal(all.substr(0, begin) + all.substr(end + 1)), "lacks '" + key + "'"));
  }
  CHECK(says(refusal("{}"), "lacks 'name'"));
  CHECK(says(refusal(replaced(small(), R"("elementwise")", R"("norm")")), "lacks a rate of 'elementwise'"));
  CHECK(says(refusal(replaced(small(), R"("product")", R"("norm")")), "lacks a rate of 'product'"));
  CHECK(says(refusal(small(R"(, "links": {"intra_node": {"latency_seconds": 1, "bytes_per_second": 1}})")),
             "lacks 'links.intra_node.node_bytes_per_second'"));
  CHECK(says(refusal(small(R"(, "products": {"bf16": [{"m": 1, "n": 1, "flops_per_second": 2}]})")),
             "lacks 'products.bf16[0].k'"));
}

TEST_CASE("unknown keys of a profile are refused with the nearest known one") {
  CHECK(says(refusal(small(R"(, "hosts_rates": {})")), "unknown key 'hosts_rates': perhaps 'host_rates'"));
  CHECK(says(refusal(replaced(small(), "\"fp32\"", "\"f32\"")), "unknown key 'f32' in 'rates': perhaps 'fp32'"));
  CHECK(says(refusal(replaced(small(), "\"elementwise\"", "\"elementwize\"")),
             "unknown key 'elementwize' in 'rates.fp32': perhaps 'elementwise'"));
  CHECK(says(refusal(replaced(small(), "\"bytes_per_second\"", "\"bytes_per_seconds\"")),
             "unknown key 'bytes_per_seconds' in 'rates.fp32.elementwise': perhaps 'bytes_per_second'"));
  CHECK(says(refusal(small(R"(, "links": {"inside": {}})")), "unknown key 'inside' in 'links'"));
  CHECK(says(refusal(small(R"(, "qqq": 1)")), "there are name, source"));
}

TEST_CASE("invalid values of a profile are refused by name") {
  for (const char* text : {"", "{", "profile", "{} {}", "\xff"}) CHECK(says(refusal(text), "is not JSON"));
  for (const char* text : {"[]", "1", "null"}) CHECK(says(refusal(text), "is not a JSON object"));
  for (const char* value : {"-1", "\"fast\"", "null", "[1]", "1e999", "true"}) {
    CHECK(says(refusal(replaced(small(), "1e9", value)), "'rates.fp32.product.flops_per_second'"));
    CHECK(says(refusal(replaced(small(), "\"cores\": 2", std::string("\"cores\": ") + value)),
               "'cores' that is not a whole number from 1 on"));
  }
  for (const char* value : {"1e31", "1e-31", "4.9e-324"})
    CHECK(says(refusal(replaced(small(), "1e9", value)), "not a number of a usual size"));
  CHECK(says(refusal(replaced(small(), "\"cores\": 2", "\"cores\": 0")), "'cores'"));
  CHECK(says(refusal(replaced(small(), "\"cores\": 2", "\"cores\": 2.5")), "'cores'"));
  CHECK(says(refusal(replaced(small(), "\"host_memory\": 1000", "\"host_memory\": 1e30")), "'host_memory'"));
  CHECK(says(refusal(replaced(small(), "false", "0")), "neither true nor false"));
  CHECK(says(refusal(replaced(small(), "1e9", "0")), "no rate above 0 in 'rates.fp32.product'"));
  CHECK(says(refusal(small(R"(, "products": {"bf16": {}})")), "'products.bf16' that is not an array"));
  CHECK(says(refusal(small(R"(, "peak_flops_per_second": {"bf16": 0})")), "'peak_flops_per_second.bf16'"));
  CHECK(says(refusal(replaced(small(), "\"x\"", "7")), "'name' that is not a text"));
}

TEST_CASE("an unknown profile is refused with the names of the shipped ones") {
  const auto error = error_of([] { (void)read_machine_profile("a100-40-p4d"); });
  CHECK(says(error, ErrorCode::usage, "`profile` a100-40-p4d: neither a file nor a shipped profile",
             "perhaps a100-40g-p4d", "h200-sxm"));
  CHECK(says(error_of([] { (void)read_machine_profile("/tmp"); }), "`profile` /tmp: cannot read"));
}

TEST_CASE("shipped profiles are read by name, and have the rates of GPUs and their links") {
  const auto names = shipped_profiles();
  CHECK(names.size() >= 5);
  for (const std::string& name : names) {
    INFO(name);
    const MachineProfile profile = read_machine_profile(name);
    CHECK(profile.name == name);
    CHECK(profile.gpu);
    CHECK(profile.source.size() > 200);
    CHECK(profile.source.find("ssumed") != std::string::npos);
    CHECK(profile.device_memory >= (16ull << 30));
    CHECK(profile.host_memory > 4 * profile.device_memory);
    CHECK(profile.disk > profile.host_memory);
    for (const auto& [dtype, peak] : profile.peak_flops_per_second) {
      const double product = profile.rates.at(dtype)[kind_of(WorkKind::product)].flops_per_second;
      CHECK(product < peak);
      CHECK(product > 0.5 * peak);
    }
    const ProfileCosts device(profile), host(profile, ProfileCosts::Where::host);
    const double on_device = seconds_of(device, {.kind = WorkKind::norm, .dtype = DType::f16, .bytes = 1e9});
    CHECK(on_device > 1e9 / 5e12);
    CHECK(on_device < 1e9 / 5e11);
    const WorkCost step{.kind = WorkKind::optimizer, .dtype = DType::f32, .bytes = 1e9};
    CHECK(seconds_of(host, step) > 5 * seconds_of(device, step));
    CHECK(seconds_of(device, {.kind = WorkKind::host_copy, .bytes = 1e9}) > 10 * on_device);
    CHECK(profile.links.intra_node.bytes_per_second > 2 * profile.links.inter_node.bytes_per_second);
    CHECK(profile.links.inter_node.node_bytes_per_second >= profile.links.inter_node.bytes_per_second);
    CHECK(profile.read_bytes_per_second >= profile.write_bytes_per_second);
    CHECK(profile.handler_seconds > 0);
  }
  for (const char* name : {"v100-32g-p3dn", "a100-40g-p4d", "a100-80g-hdr", "h100-sxm", "h200-sxm"})
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
}

TEST_CASE("work takes its launch time plus the longer of the times for its flops and for its bytes") {
  MachineProfile profile = parse_machine_profile(small(), "a test");
  profile.rates[DType::f32][kind_of(WorkKind::attention)] = {1e-3, 1e6, 1e5};
  const ProfileCosts costs(profile);
  CHECK(costs.duration({.kind = WorkKind::attention, .flops = 5e5, .bytes = 1e4}) ==
        std::chrono::milliseconds(501));
  CHECK(costs.duration({.kind = WorkKind::attention, .flops = 5e5, .bytes = 1e5}) ==
        std::chrono::milliseconds(1001));
  CHECK(costs.duration({.kind = WorkKind::attention}) == std::chrono::milliseconds(1));
  CHECK(costs.duration({.kind = WorkKind::attention, .flops = 1e300}) > std::chrono::hours(24));
}

TEST_CASE("work of a kind or type without a rate uses the rate of the nearest one") {
  MachineProfile profile = parse_machine_profile(small(), "a test");
  profile.rates[DType::bf16][kind_of(WorkKind::norm)] = {0, 0, 2e8};
  const ProfileCosts costs(profile), host(profile, ProfileCosts::Where::host);
  CHECK(seconds_of(costs, {.kind = WorkKind::dropout, .dtype = DType::bf16, .bytes = 1e8}) == doctest::Approx(1));
  CHECK(seconds_of(costs, {.kind = WorkKind::norm, .dtype = DType::f16, .bytes = 1e8}) == doctest::Approx(0.5));
  CHECK(seconds_of(costs, {.kind = WorkKind::elementwise, .dtype = DType::f64, .bytes = 1e8}) ==
        doctest::Approx(1));
  const WorkCost product = product_cost({100, 100, 100}, DType::f16, DType::f16, false);
  CHECK(seconds_of(costs, product) == doctest::Approx(2e-3));
  CHECK(host.duration(product) == costs.duration(product));
  profile.host_rates[kind_of(WorkKind::elementwise)] = {0, 0, 1e7};
  const ProfileCosts other_host(profile, ProfileCosts::Where::host);
  CHECK(seconds_of(other_host, {.kind = WorkKind::optimizer, .bytes = 1e7}) == doctest::Approx(1));
  CHECK(seconds_of(other_host, {.kind = WorkKind::optimizer_int8, .bytes = 1e7}) == doctest::Approx(1));
  profile.host_rates[kind_of(WorkKind::optimizer)] = {0, 0, 5e6};
  const ProfileCosts of_fp32(profile, ProfileCosts::Where::host);
  CHECK(seconds_of(of_fp32, {.kind = WorkKind::optimizer_int8, .bytes = 1e7}) == doctest::Approx(2));
  profile.host_rates[kind_of(WorkKind::optimizer_int8)] = {0, 0, 2e6};
  const ProfileCosts of_int8(profile, ProfileCosts::Where::host);
  CHECK(seconds_of(of_int8, {.kind = WorkKind::optimizer_int8, .bytes = 1e7}) == doctest::Approx(5));
}

TEST_CASE("a product has the rate measured for its shape, and between two shapes a rate between theirs") {
  const MachineProfile profile = measured_products();
  const ProfileCosts costs(profile);
  const auto rate = [&](std::size_t m, std::size_t n, std::size_t k) {
    const WorkCost cost = product_cost({m, n, k}, DType::f32, DType::f32, false);
    const Duration first = costs.duration(cost);
    CHECK(costs.duration(cost) == first);  // remembered
    return cost.flops / seconds(first);
  };
  for (const ProductRate& product : profile.products.at(DType::f32)) {
    const auto [m, n, k] = product.shape;
    CHECK(rate(m, n, k) == doctest::Approx(product.flops_per_second).epsilon(1e-3));
  }
  CHECK(rate(64, 1024, 1024) > rate(16, 1024, 1024));
  CHECK(rate(64, 1024, 1024) < rate(256, 1024, 1024));
  CHECK(rate(256, 256, 256) > rate(256, 64, 64));
  CHECK(rate(256, 256, 256) < rate(256, 1024, 1024));
  CHECK(rate(1 << 20, 1024, 1024) == doctest::Approx(rate(4096, 1024, 1024)).epsilon(0.05));
  const WorkCost bf16 = product_cost({256, 1024, 1024}, DType::bf16, DType::bf16, false);
  CHECK(seconds_of(costs, bf16) == doctest::Approx(bf16.flops / 1e9));  // not measured: the rate of its kind
}

TEST_CASE("products bound by arithmetic and by memory are predicted between and beyond measured ones") {
  MachineProfile profile = parse_machine_profile(small(), "a test");
  const auto seconds_of_product = [](double m, double n, double k) {
    return 2e-11 * m * n * k + 3e-10 * m * n + 5e-10 * k * n;
  };
  for (const std::size_t m : {64, 512, 4096})
    for (const std::size_t n : {256, 1024})
      for (const std::size_t k : {64, 1024}) {
        const double seconds =
            seconds_of_product(static_cast<double>(m), static_cast<double>(n), static_cast<double>(k));
        profile.products[DType::f32].push_back({{m, n, k}, 2 * static_cast<double>(m * n * k) / seconds});
      }
  const ProfileCosts costs(profile);
  for (const ProductShape& shape :
       {ProductShape{1024, 384, 1536}, {100, 700, 20}, {1 << 16, 4096, 8192}, {3, 500, 7000}}) {
    const double expected = seconds_of_product(static_cast<double>(shape.m), static_cast<double>(shape.n),
                                               static_cast<double>(shape.k));
    CHECK(seconds_of(costs, product_cost(shape, DType::f32, DType::f32, false)) ==
          doctest::Approx(expected).epsilon(1e-4));
  }
}

TEST_CASE("contention slows each kind of work by the profile's factor for it, or by the common factor") {
  MachineProfile profile = parse_machine_profile(small(R"(, "crowding": 1.25)"), "a test");
  profile.rates[DType::f32][kind_of(WorkKind::norm)] = {.bytes_per_second = 1e8, .crowding = 1.75};
  const ProfileCosts costs(profile);
  CHECK(costs.crowding({.kind = WorkKind::norm}) == 1.75);
  CHECK(costs.crowding({.kind = WorkKind::norm, .dtype = DType::bf16}) == 1.75);
  CHECK(costs.crowding({.kind = WorkKind::product}) == 1.25);
}

TEST_CASE("the startup time of a product is added to the time measured for its shape") {
  MachineProfile profile = measured_products();
  profile.rates[DType::f32][kind_of(WorkKind::product)].launch_seconds = 0.25;
  const ProfileCosts costs(profile);
  const ProductRate& product = profile.products[DType::f32].front();
  const WorkCost cost = product_cost(product.shape, DType::f32, DType::f32, true);
  CHECK(seconds_of(costs, cost) == doctest::Approx(0.25 + cost.flops / product.flops_per_second));
}
