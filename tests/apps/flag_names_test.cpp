#include "apps/program/flag_names.hpp"

#include "tests/test.hpp"

using ranvier::apps::with_flags;

TEST_CASE("fields in backquotes become flags, and other text stays") {
  CHECK(with_flags("`batch_size` 7 is not a multiple of `g_data` 2; use a multiple of 2") ==
        "--batch-size 7 is not a multiple of --g-data 2; use a multiple of 2");
  CHECK(with_flags("`tile`") == "--tile");
  for (const char* text :
       {"", "`", "``", "`tile", "a_b 'tile_size'", "`two words`", "`ranvier-bench profile`", "`1f1b`"})
    CHECK(with_flags(text) == text);
  CHECK(with_flags("`ls -l` `tile`") == "`ls -l` --tile");
}
