// Every sharding that a job can have.
#pragma once

#include "collectives/plans/shard.hpp"

#include <vector>

namespace ranvier::tests {

inline std::vector<collectives::Sharding> all_shardings() {
  using collectives::Scope;
  constexpr Scope scopes[] = {Scope::none, Scope::group, Scope::global};
  std::vector<collectives::Sharding> all;
  for (const Scope parameters : scopes)
    for (const Scope gradients : scopes)
      for (const Scope optimizer : scopes) all.push_back({parameters, gradients, optimizer});
  all.push_back(collectives::parse_sharding("zero++"));
  return all;
}

}  // namespace ranvier::tests
