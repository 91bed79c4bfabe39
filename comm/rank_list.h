// How messages name ranks.
#pragma once
#include <string>
#include <vector>

namespace tessera {

// "rank 2", "ranks 0, 3": in order, each once.
std::string rank_list(std::vector<int> ranks);
// Who has equal values, given by rank: groups in the order of their first ranks.
std::vector<std::vector<int>> ranks_of_equal(const std::vector<std::string>& values);

}  // namespace tessera
