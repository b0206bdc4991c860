// Performance of one machine type: device, host, links and files. `ranvier-bench profile` measures one;
// runtime/profiles/ has some made from published figures. The JSON keys are the field names below, and the names of
// types and kinds of work: "rates": {"bf16": {"norm": {…}}}. Plain data; any thread.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/work_cost.hpp"

#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::runtime {

/// One class of a cluster's links, full duplex; rates are per direction.
struct Link {
  double latency_seconds = 0;        ///< time before the first byte of a message arrives
  double bytes_per_second = 0;       ///< rate of one rank
  double node_bytes_per_second = 0;  ///< total rate of all ranks of a node

  [[nodiscard]] bool measured() const noexcept { return bytes_per_second > 0; }

  friend bool operator==(const Link&, const Link&) = default;
};

struct Links {
  Link intra_node;  ///< between ranks of one node
  Link inter_node;  ///< between nodes

  friend bool operator==(const Links&, const Links&) = default;
};

/// Work of one kind and element type takes launch_seconds + max(flops / flops_per_second, bytes / bytes_per_second).
/// A rate of 0 means no limit. Both amounts are defined in work_cost.hpp.
struct WorkRate {
  double launch_seconds = 0;
  double flops_per_second = 0;
  double bytes_per_second = 0;
  double crowding = 0;  ///< on CPUs, factor for this kind of work if all cores are busy; 0: the profile's

  friend bool operator==(const WorkRate&, const WorkRate&) = default;
};

/// Measured rate of one matrix multiplication. Its time also includes launch_seconds of WorkKind::product.
struct ProductRate {
  ProductShape shape;
  double flops_per_second = 0;

  friend bool operator==(const ProductRate&, const ProductRate&) = default;
};

struct MachineProfile {
  std::string name;    ///< for users: "a100-80g-400g"
  std::string source;  ///< origin of the figures
  bool gpu = false;    ///< whether device memory is separate from the host's, behind a link (`host_copy`)
  int threads = 1;  ///< threads of a rank's device if it is the CPU; rates are for this number, alone on the node
  int cores = 1;    ///< cores per node, shared by its ranks if they have more threads
  std::size_t device_memory = 0;                            ///< bytes
  std::size_t host_memory = 0;                              ///< bytes per node
  std::size_t disk = 0;                                     ///< bytes per node, for model states
  std::map<DType, double> peak_flops_per_second;            ///< by element type, used for MFU
  std::map<DType, std::array<WorkRate, work_kinds>> rates;  ///< by element type and kind
  /// By element type; without measured shapes the rate of the kind applies.
  std::map<DType, std::vector<ProductRate>> products;
  std::array<WorkRate, work_kinds> host_rates{};  ///< rates of the host's cores next to a GPU (AdamW, additions)
  double read_bytes_per_second = 0, write_bytes_per_second = 0;  ///< rates of a node's files
  double file_latency_seconds = 0;
  double handler_seconds = 0;  ///< time per handler of a rank's loop
  /// Slowdown of work if all cores of a node are busy, compared with `threads` busy ones; at least 1.
  double crowding = 1;
  Links links;
  double price_per_hour = 0;  ///< price of one device; 0: unknown

  friend bool operator==(const MachineProfile&, const MachineProfile&) = default;
};

// Readers throw ErrorCode::usage that starts with `source` and names the missing, unknown or invalid key.
[[nodiscard]] MachineProfile parse_machine_profile(std::string_view json, std::string_view source);
/// Reads a path, or a shipped profile by name. Throws ErrorCode::usage with the available names.
[[nodiscard]] MachineProfile read_machine_profile(const std::string& path_or_name);
/// Names of the shipped profiles, in alphabetical order.
[[nodiscard]] std::vector<std::string> shipped_profiles();
/// JSON text with numbers of nine digits, for parse_machine_profile().
[[nodiscard]] std::string to_json(const MachineProfile& profile);

/// Parses a file of links alone: {"intra_node": {…}, "inter_node": {…}}, with at least one of them.
[[nodiscard]] Links parse_links(std::string_view json, std::string_view source);
[[nodiscard]] Links read_links(const std::filesystem::path& path);
/// JSON text with all significant digits, for parse_links(). A link without a rate is omitted.
[[nodiscard]] std::string to_json(const Links& links);

/// Cost model from a profile, for its device or its host. One thread at a time: it caches rates of shapes.
///
/// If the profile has no rate for a kind and type, the same kind in another type applies: the first of fp32, bf16,
/// fp16. Without one, optimizer_int8 takes the rate of optimizer; then elementwise work applies. Host work without
/// host_rates takes the device's rates.
class ProfileCosts final : public CostModel {
 public:
  enum class Where { device, host };
  /// The profile outlives it.
  explicit ProfileCosts(const MachineProfile& profile, Where where = Where::device);
  /// Time of a matrix multiplication: a·mnk + b·mn + c·mk + d·kn seconds (a, b, c, d ≥ 0, fitted to all measured shapes
  /// by relative error), times a correction. The correction is the geometric mean of the measured shapes' errors,
  /// weighted by 1 / distance⁴. The distance is between logarithms of m, n and k, clamped to the measured range.
  [[nodiscard]] Duration duration(const WorkCost& cost) const override;
  /// Slowdown of CPU work if all cores of its node are busy.
  [[nodiscard]] double crowding(const WorkCost& cost) const;

 private:
  struct Point {
    std::array<double, 3> place;  ///< logarithms of m, n, k
    double off;                   ///< logarithm of measured time / fitted time
  };
  struct Points {
    std::vector<Point> all;
    std::array<double, 3> least{}, most{};  ///< range of all Point::place
    std::array<double, 4> terms{};          ///< fitted a, b, c, d
  };
  static constexpr std::size_t dtypes = static_cast<std::size_t>(DType::i32) + 1;

  [[nodiscard]] double product_seconds(std::size_t dtype, const ProductShape& shape) const;

  double crowding_;
  std::array<std::array<WorkRate, work_kinds>, dtypes> rates_{};
  std::array<Points, dtypes> points_;
  mutable std::array<std::map<std::array<std::size_t, 3>, double>, dtypes> known_;
};

/// A file of runtime/profiles/, compiled in by CMake. Any thread.
struct ShippedProfile {
  std::string_view name;  ///< file name without .json
  std::string_view json;
};

[[nodiscard]] std::span<const ShippedProfile> all_shipped_profiles();

}  // namespace ranvier::runtime
