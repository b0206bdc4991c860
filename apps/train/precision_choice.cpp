#include "apps/train/precision_choice.hpp"

#include "apps/program/agreement.hpp"
#include "apps/program/default_precision.hpp"
#include "offload/checkpoint/folder.hpp"
#include "runtime/error.hpp"
#include "runtime/machine_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ranvier::apps {

namespace {

namespace fs = std::filesystem;
using runtime::DType;

constexpr std::string_view how_to_change = "; --precision fp32 trains in single precision";

/// Empty: it was not given.
std::string value_of(const std::vector<GivenFlag>& given, std::string_view name) {
  const auto found =
      std::find_if(given.begin(), given.end(), [&](const GivenFlag& flag) { return flag.name == name; });
  return found == given.end() ? std::string() : found->value;
}

std::optional<DType> dtype_of(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == to_string(dtype)) return dtype;
  return {};
}

/// The newest complete checkpoint that the run would resume from; empty: there is none.
fs::path checkpoint_of(const std::vector<GivenFlag>& given) {
  const std::string resume = value_of(given, "resume");
  if (resume.empty() || resume == "none") return {};
  const fs::path path = resume == "auto" ? value_of(given, "checkpoint") : resume;
  if (path.empty() || fs::exists(path / offload::Manifest::file_name)) return path;
  const auto newest = offload::CheckpointFolder(path).newest_whole();
  return newest ? newest->path : fs::path();
}

/// By the options that a checkpoint has recorded.
std::optional<ChosenPrecision> recorded_precision(const std::vector<GivenFlag>& given) {
  try {
    const fs::path checkpoint = checkpoint_of(given);
    if (checkpoint.empty()) return {};
    const offload::Manifest manifest = offload::read_manifest(offload::system_storage(), checkpoint);
    const auto* const options = manifest.about.if_contains("options");
    const auto* const recorded =
        options != nullptr && options->is_object() ? options->get_object().if_contains("precision") : nullptr;
    if (recorded == nullptr || !recorded->is_string()) return {};
    const auto dtype = dtype_of(recorded->get_string());
    if (!dtype) return {};
    return ChosenPrecision{*dtype, fmt::format("that of {}", checkpoint.string())};
  } catch (const std::exception&) {
    return {};
  }
}

/// Machines that --world describes.
std::optional<ChosenPrecision> imagined_precision(const std::vector<GivenFlag>& given) {
  const std::string profile = value_of(given, "profile");
  if (value_of(given, "world").empty() || profile.empty()) return {};
  try {
    return ChosenPrecision{default_precision(runtime::read_machine_profile(profile)),
                           fmt::format("default of {}{}", profile, how_to_change)};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

ChosenPrecision choose_precision(runtime::MpiSession& session, const std::vector<GivenFlag>& given) {
  DeviceFlag device = DeviceFlag::cpu;
  std::optional<int> gpu;
  if (const std::string name = value_of(given, "device"); !name.empty())
    static_cast<void>(device_flag(device, gpu).read(name));
  const bool all_have_bf16 = session.smallest(default_precision(device, gpu, &session) == DType::f16 ? 0 : 1) == 1;
  ChosenPrecision chosen{default_precision(device == DeviceFlag::cuda, all_have_bf16), {}};
  if (chosen.dtype != DType::f32)
    chosen.reason =
        fmt::format("default of this GPU{}{}", all_have_bf16 ? "" : ", which has no bf16", how_to_change);
  if (session.rank() == 0) {
    if (auto recorded = recorded_precision(given)) {
      if (recorded->dtype != chosen.dtype) chosen = std::move(*recorded);
    } else if (auto imagined = imagined_precision(given); imagined && device == DeviceFlag::cuda) {
      chosen = std::move(*imagined);
    }
  }
  const std::string name = broadcast_text(session, std::string(to_string(chosen.dtype)));
  return {*dtype_of(name), broadcast_text(session, chosen.reason)};
}

}  // namespace ranvier::apps
