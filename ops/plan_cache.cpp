#include "ops/plan_cache.h"

#include <cstdlib>
#include <mutex>

#include "ops/plan_file.h"
#include "runtime/error.h"

namespace tessera {
namespace {

struct PlanCache {
  std::mutex mutex;
  std::string path;
  bool in_use = false;

  PlanCache() {
    if (const char* text = std::getenv("TESSERA_CUDNN_PLANS")) path = text;
  }
};
PlanCache& the_cache() {
  static PlanCache cache;
  return cache;
}

}  // namespace

void set_plan_cache(const std::string& path) {
  const std::lock_guard lock(the_cache().mutex);
  TS_CHECK(!the_cache().in_use, "set_plan_cache", "{} was given after the first plan was made", path);
  the_cache().path = path;
}

std::string plan_cache() {
  const std::lock_guard lock(the_cache().mutex);
  the_cache().in_use = true;
  return the_cache().path;
}

void check_plan_cache(const Communicator& world) {
  std::string path;
  {
    const std::lock_guard lock(the_cache().mutex);
    path = the_cache().path;
  }
  agree(world, "plan cache", path.empty() ? "" : plan_file_fault(path));
}

}  // namespace tessera
