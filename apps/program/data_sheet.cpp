#include "apps/program/data_sheet.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <string>

namespace ranvier::apps {

namespace {

using runtime::DType;

struct DataSheet {
  std::string_view gpu;  ///< name after reduced()
  double half, fp32;     ///< FLOP per second
  bool bf16 = true;      ///< bf16 has the rate of fp16; false: no bf16 tensor cores
};

// Source: NVIDIA's data sheet of each GPU; for GeForce and RTX cards the white paper of their architecture.
constexpr std::array data_sheets{
    DataSheet{"a10", 125e12, 31.2e12},
    DataSheet{"a10g", 70e12, 31.5e12},
    DataSheet{"a30", 165e12, 10.3e12},
    DataSheet{"a40", 149.7e12, 37.4e12},
    DataSheet{"a100 pcie", 312e12, 19.5e12},
    DataSheet{"a100 sxm", 312e12, 19.5e12},
    DataSheet{"a100 sxm4", 312e12, 19.5e12},
    DataSheet{"a800 sxm4", 312e12, 19.5e12},
    DataSheet{"b200", 2250e12, 75e12},
    DataSheet{"gb200", 2500e12, 80e12},
    DataSheet{"gh200", 989.4e12, 66.9e12},
    DataSheet{"h20", 148e12, 44e12},
    DataSheet{"h100", 989.4e12, 66.9e12},
    DataSheet{"h100 nvl", 835.5e12, 60e12},
    DataSheet{"h100 pcie", 756.5e12, 51.2e12},
    DataSheet{"h200", 989.4e12, 66.9e12},
    DataSheet{"h200 nvl", 835.5e12, 60e12},
    DataSheet{"h800", 989.4e12, 66.9e12},
    DataSheet{"l4", 121e12, 30.3e12},
    DataSheet{"l40", 181.05e12, 90.5e12},
    DataSheet{"l40s", 362.05e12, 91.6e12},
    DataSheet{"rtx 3090", 71e12, 35.6e12},
    DataSheet{"rtx 4090", 165.2e12, 82.6e12},
    DataSheet{"rtx 5090", 209.5e12, 104.8e12},
    DataSheet{"rtx 6000 ada generation", 364.2e12, 91.1e12},
    DataSheet{"rtx a6000", 154.8e12, 38.7e12},
    DataSheet{"t4", 65e12, 8.1e12, false},
    DataSheet{"v100 pcie", 112e12, 14e12, false},
    DataSheet{"v100 sxm2", 125e12, 15.7e12, false},
    DataSheet{"v100 sxm3", 125e12, 15.7e12, false},
    DataSheet{"v100s pcie", 130e12, 16.4e12, false},
};

bool is_left_out(std::string_view word) {
  if (word == "nvidia" || word == "tesla" || word == "geforce" || word.starts_with("hbm")) return true;
  const std::size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
  return digits > 0 && (word.substr(digits) == "gb" || word.substr(digits) == "g");  // memory size
}

/// "a100 sxm4" of "NVIDIA A100-SXM4-40GB".
std::string reduced(std::string_view name) {
  std::string text, lower(name);
  for (char& c : lower) c = c == '-' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::istringstream words(lower);
  for (std::string word; words >> word;)
    if (!is_left_out(word)) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

std::map<DType, double> data_sheet_rates(std::string_view gpu) {
  const std::string name = reduced(gpu);
  const auto* const found = std::ranges::find(data_sheets, name, &DataSheet::gpu);
  if (found == data_sheets.end()) return {};
  std::map<DType, double> rates{{DType::f32, found->fp32}, {DType::f16, found->half}};
  if (found->bf16) rates[DType::bf16] = found->half;
  return rates;
}

}  // namespace ranvier::apps
