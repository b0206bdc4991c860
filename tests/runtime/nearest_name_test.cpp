#include "runtime/base/names.hpp"
#include "tests/test.hpp"

using ranvier::runtime::nearest_name;

TEST_CASE("the nearest name is the one with the fewest edits, if near at all") {
  const std::vector<std::string> names = {"heads", "hidden", "layers"};
  CHECK(nearest_name("head", names) == "heads");
  CHECK(nearest_name("hiden", names) == "hidden");
  CHECK(nearest_name("alyers", names) == "layers");
  CHECK_FALSE(nearest_name("zzzzzzz", names).has_value());
  CHECK(nearest_name("num-layers", names) == "layers");
  CHECK(nearest_name("hidden_size", names) == "hidden");
  CHECK(nearest_name("save-every", {"sample-every", "eval-every", "save"}) == "save");
  CHECK_FALSE(nearest_name("resume", {"reuse", "recompute", "seed"}).has_value());
  CHECK_FALSE(nearest_name("", {}).has_value());
}
