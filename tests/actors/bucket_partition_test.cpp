#include "actors/schedule/bucket_partition.hpp"

#include "collectives/plans/shard.hpp"
#include "runtime/base/error.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::BucketPartition;
using collectives::Range;
using collectives::Scope;

TEST_CASE("the buckets of every scope's range contain each element once, in slices of every finest piece") {
  for (const int ranks : {1, 2, 4, 6}) {
    for (const std::size_t piece : {32, 512, 700, 5000}) {
      for (const std::size_t bucket : {1, 512, 1500, 4096, 1 << 20}) {
        const std::size_t elements = piece * static_cast<std::size_t>(ranks);
        const std::vector<int> one_node(static_cast<std::size_t>(ranks), 0);
        const collectives::ShardLayout layout(one_node, ranks % 2 == 0 ? 2 : 1, ranks - 1);
        for (const Scope held : {Scope::none, Scope::group, Scope::global}) {
          const auto pieces_held = static_cast<std::size_t>(layout.ranks() / layout.pieces(held));
          const BucketPartition cut(elements, ranks, bucket, pieces_held);
          CHECK(cut.piece_elements() == piece);
          for (const Scope scope : {Scope::none, Scope::group, Scope::global}) {
            const Range range = layout.range(scope, elements);
            std::vector<int> taken(elements, 0);
            for (std::size_t b = 0; b < cut.buckets(); ++b) {
              const Range slice = cut.slice(b);
              CHECK(slice.begin % BucketPartition::granule == 0);
              CHECK(slice.count > 0);
              std::size_t count = 0;
              for (const Range& run : cut.runs(range, b)) {
                CHECK(run.begin % piece == slice.begin);
                count += run.count;
                for (std::size_t e = run.begin; e < run.begin + run.count; ++e) ++taken[e];
              }
              CHECK(count == cut.elements(range, b));
              if (scope == held) CHECK(count <= std::max(bucket, pieces_held * BucketPartition::granule));
            }
            for (std::size_t e = 0; e < elements; ++e) {
              const bool inside = e >= range.begin && e < range.begin + range.count;
              if (taken[e] != (inside ? 1 : 0)) FAIL_CHECK("element " << e << " is taken " << taken[e] << " times");
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a unit without elements has no buckets, and one that is not divisible among ranks is refused") {
  CHECK(BucketPartition(0, 4, 100, 1).buckets() == 0);
  CHECK(BucketPartition().buckets() == 0);
  CHECK_THROWS_AS(BucketPartition(33, 2, 100, 1), Error);
}
