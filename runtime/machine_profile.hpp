// What one kind of machine does: its device, host, links and files, from which the time of any work follows.
// `ranvier-bench profile` measures one; runtime/profiles/ has some made from published figures. The file is JSON, whose
// keys are the names of the fields below; types and kinds of work are keys, too: "rates": {"bf16": {"norm": {…}}}.
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/links.hpp"
#include "runtime/work_cost.hpp"

#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::runtime {

/// Work of one kind and element type takes launch_seconds + max(flops / flops_per_second, bytes / bytes_per_second).
/// A rate of 0 bounds nothing.
struct WorkRate {
  double launch_seconds = 0;
  double flops_per_second = 0;
  double bytes_per_second = 0;
  double crowding = 0;  ///< on CPUs, of this kind of work; 0: the profile's

  friend bool operator==(const WorkRate&, const WorkRate&) = default;
};

/// A matrix product that was measured. Its time is that of the rate, and the launch_seconds of products.
struct ProductRate {
  ProductShape shape;
  double flops_per_second = 0;

  friend bool operator==(const ProductRate&, const ProductRate&) = default;
};

struct MachineProfile {
  std::string name;    ///< "a100-80g-400g": for people
  std::string source;  ///< where the figures are from
  bool gpu = false;    ///< device memory is apart from the host's, behind a link (`host_copy`)
  int threads = 1;     ///< of a rank's device, where it is the CPU; rates are for so many, alone on the node
  int cores = 1;       ///< of a node: ranks that have more threads than these share them
  std::size_t device_memory = 0;                            ///< bytes
  std::size_t host_memory = 0;                              ///< bytes of a node
  std::size_t disk = 0;                                     ///< bytes of a node, for states
  std::map<DType, double> peak_flops_per_second;            ///< by element type, as MFU has it
  std::map<DType, std::array<WorkRate, work_kinds>> rates;  ///< by element type and kind
  std::map<DType, std::vector<ProductRate>> products;  ///< measured shapes; without any, the kind's rate counts
  std::array<WorkRate, work_kinds> host_rates{};       ///< of the host's cores, beside a GPU (AdamW, additions)
  double read_bytes_per_second = 0, write_bytes_per_second = 0;  ///< of a node's files
  double file_latency_seconds = 0;
  double handler_seconds = 0;  ///< what a rank's loop needs for a handler
  /// How many times as long work takes while all cores of a node are busy as while `threads` are; at least 1.
  double crowding = 1;
  Links links;
  double price_per_hour = 0;  ///< of one device; 0: not known

  friend bool operator==(const MachineProfile&, const MachineProfile&) = default;
};

/// Throws ErrorCode::usage that begins with `source` and names the key that is missing, unknown or no sensible number.
[[nodiscard]] MachineProfile parse_machine_profile(std::string_view json, std::string_view source);
/// A path, or the name of one that ships with the program. Throws ErrorCode::usage, with the names that there are.
[[nodiscard]] MachineProfile read_machine_profile(const std::string& path_or_name);
/// Names of those that ship with the program, in alphabetical order.
[[nodiscard]] std::vector<std::string> shipped_profiles();
/// What parse_machine_profile() reads back as the same, rounded to nine digits.
[[nodiscard]] std::string to_json(const MachineProfile& profile);

/// Times of work by a profile: of its device, or of its host.
///
/// What the profile has no rate for takes that of the same kind in another type (the first of fp32, bf16, fp16 that
/// there is), or else that of elementwise work; the host's work, where there are no host_rates, that of the device.
/// One thread at a time: rates of shapes that were asked for are remembered.
class ProfileCosts final : public CostModel {
 public:
  enum class Where { device, host };
  /// The profile outlives it.
  explicit ProfileCosts(const MachineProfile& profile, Where where = Where::device);
  /// A product takes a·mnk + b·mn + c·mk + d·kn seconds, with a, b, c, d ≥ 0 that come nearest to all measured shapes,
  /// by ratio, times what those around it are off from that: their mean by logarithms, weighted by 1 / d⁴, with the
  /// distance d between the logarithms of m, n and k, where a size beyond all measured ones counts as the nearest.
  [[nodiscard]] Duration duration(const WorkCost& cost) const override;
  /// How many times as long work takes while all cores of its node are busy; of a CPU.
  [[nodiscard]] double crowding(const WorkCost& cost) const;

 private:
  struct Point {
    std::array<double, 3> place;  ///< logarithms of m, n, k
    double off;                   ///< logarithm of its time by what the terms say
  };
  struct Points {
    std::vector<Point> all;
    std::array<double, 3> least{}, most{};  ///< of their places
    std::array<double, 4> terms{};          ///< a, b, c, d
  };
  static constexpr std::size_t dtypes = static_cast<std::size_t>(DType::i32) + 1;

  [[nodiscard]] double product_seconds(std::size_t dtype, const ProductShape& shape) const;

  double crowding_;
  std::array<std::array<WorkRate, work_kinds>, dtypes> rates_{};
  std::array<Points, dtypes> points_;
  mutable std::array<std::map<std::array<std::size_t, 3>, double>, dtypes> known_;
};

}  // namespace ranvier::runtime
