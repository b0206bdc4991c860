// A config file with options of every type, and files by weight.
#include "models/text/mixed_source.hpp"
#include "apps/program/options.hpp"
#include "tests/fuzz/input.hpp"

#include <array>
#include <optional>

using namespace ranvier;

namespace {

struct Options {
  int count = 1;
  double share = 0.5;
  int colour = 0;
  std::string name;
  std::optional<std::size_t> memory;
  bool shuffle = true, dry = false;
  std::string config;

  apps::OptionTable table() {
    apps::OptionTable table;
    table.concern("Some");
    table.add({"count", "N", "", apps::whole(count, 1, 1000)});
    table.add({"share", "X", "", apps::real(share, 0, 1, true)});
    table.add({"colour", "NAME", "", apps::choice<int>(colour, {{"red", 0}, {"blue", 1}})});
    table.add({"name", "TEXT", "", apps::text(name)});
    table.add({"memory", "SIZE", "", apps::bytes(memory)});
    table.add({"shuffle", "on|off", "", apps::toggle(shuffle)});
    table.add({"dry", "", "", apps::switch_on(dry)});
    table.add({"config", "FILE", "", apps::text(config), {}, true});
    return table;
  }

  std::vector<apps::ResolvedOption> read(const std::string& path) {
    auto all = table();
    const std::array arguments{"fuzz", "--config", path.c_str()};
    all.parse(static_cast<int>(arguments.size()), arguments.data());
    return all.resolved();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder;
  const std::string path = folder.write("run.conf", fuzz::view(data, size));
  fuzz::accepts_or_refuses("`data`", [&] {
    for (const auto& one : models::parse_weighted_paths(std::string(fuzz::view(data, size))))
      fuzz::require(one.weight > 0, "a weight is above 0");
  });
  fuzz::accepts_or_refuses(path, [&] {
    Options options;
    const auto once = options.read(path);
    std::string written;
    for (const auto& option : once)
      if (!option.value.empty() && option.name != "config") written += option.name + " = " + option.value + "\n";
    folder.write("run.conf", written);
    Options again;
    fuzz::require(apps::hash_of(again.read(path)) == apps::hash_of(once), "options read back as written");
  });
  return 0;
}
