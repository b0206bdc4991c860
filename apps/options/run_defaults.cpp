#include "apps/options/train_options.hpp"
#include "apps/program/agreement.hpp"
#include "apps/program/device_flag.hpp"
#include "apps/view/history.hpp"
#include "offload/checkpoint/folder.hpp"
#include "runtime/base/error.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>
#include <boost/json/value_to.hpp>
#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ranvier::apps {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using runtime::DType;

constexpr std::string_view how_to_change = "; --precision fp32 trains in single precision";

std::optional<DType> dtype_of(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == to_string(dtype)) return dtype;
  return {};
}

/// The newest complete checkpoint that the run would resume from; empty: there is none.
fs::path checkpoint_of(const CheckpointOptions& options) {
  if (!options.resumes()) return {};
  const fs::path path = options.resume == "auto" ? options.folder : options.resume;
  if (path.empty() || fs::exists(path / offload::Manifest::file_name)) return path;
  const auto newest = offload::CheckpointFolder(path).newest_whole();
  return newest ? newest->path : fs::path();
}

struct RecordedOptions {
  std::string checkpoint;  ///< its path
  boost::json::object options;
};

std::optional<RecordedOptions> recorded_options(const CheckpointOptions& asked) {
  try {
    const fs::path checkpoint = checkpoint_of(asked);
    if (checkpoint.empty()) return {};
    const offload::Manifest manifest = offload::read_manifest(offload::system_storage(), checkpoint);
    const auto* const options = object_of(manifest.about, "options");
    if (options == nullptr) return {};
    return RecordedOptions{checkpoint.string(), *options};
  } catch (const std::exception&) {
    return {};
  }
}

/// Default for the machine of --profile, if --world simulates ranks.
std::optional<RunDefaults> imagined_precision(const AskedOptions& asked) {
  const std::string& profile = asked.options.run.profile;
  if (asked.world == 0 || profile.empty()) return {};
  try {
    return RunDefaults{default_precision(runtime::read_machine_profile(profile)),
                       fmt::format("default of {}{}", profile, how_to_change),
                       {}};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

RunDefaults run_defaults(runtime::MpiSession& session, const std::vector<GivenFlag>& given) {
  const AskedOptions asked = asked_options(given);
  const auto [device, gpu] = std::pair(asked.options.device.device, asked.options.device.gpu);
  const bool all_have_bf16 = session.smallest(default_precision(device, gpu, &session) == DType::f16 ? 0 : 1) == 1;
  RunDefaults chosen{default_precision(device == DeviceFlag::cuda, all_have_bf16), {}, {}};
  if (chosen.precision != DType::f32)
    chosen.precision_reason =
        fmt::format("default of this GPU{}{}", all_have_bf16 ? "" : ", which has no bf16", how_to_change);
  if (session.rank() == 0) {
    if (const auto recorded = recorded_options(asked.options.checkpoint)) {
      const auto precision = dtype_of(text_of(recorded->options, "precision"));
      if (precision && *precision != chosen.precision)
        chosen = {*precision, fmt::format("from {}", recorded->checkpoint), {}};
      for (const auto& option : recorded->options)
        if (const std::string value = text_of(recorded->options, option.key()); !value.empty())
          chosen.recorded[option.key()] = value;
    } else if (auto imagined = imagined_precision(asked); imagined && device == DeviceFlag::cuda) {
      chosen = std::move(*imagined);
    }
  }
  chosen.precision = *dtype_of(broadcast_text(session, std::string(to_string(chosen.precision))));
  chosen.precision_reason = broadcast_text(session, chosen.precision_reason);
  const std::string recorded = broadcast_text(session, json::serialize(json::value_from(chosen.recorded)));
  chosen.recorded = json::value_to<std::map<std::string, std::string>>(json::parse(recorded));
  return chosen;
}

}  // namespace ranvier::apps
