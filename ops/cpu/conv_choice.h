// Which way a convolution is worked out, chosen per shape and pass.
//
// There are three ways: by oneDNN on the channels-last maps as they lie; by oneDNN in the layout it likes
// best, with the maps converted before and after; by our own loops. Which is the fastest depends on the
// shape, the pass and the machine by factors, and no rule knows it. So the first call of a shape tries the
// ways on its own data, conversions included: each once to make plans and touch memory, then once more for
// the clock, and up to three times as long as all of it has not taken 50 ms. One that beats what the rule
// says by more than 5 % takes its place; where it leads by less than half, and time is up, the two are timed
// up to twice more. Small problems follow the rule alone. The choice holds for the process, for all its
// threads. Nothing is communicated: ranks may choose differently, and then differ by rounding, as they do
// where their shards differ in size. What several ranks work out alike on a mesh, because nothing is cut,
// follows the rule: copies stay the same bits. Plain tensors know of no other ranks; each of these chooses
// for itself.
//
// What is timed is not the same in every run. Whoever needs the same bits again says
//   TESSERA_CONV_PLANS=file   choices are read from it at first use; new ones are added when the process ends
//   TESSERA_CONV_CHOICE=rule  no timing (measure is the default; channels_last, any and own take that way
//                             wherever it can be taken)
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "ops/cpu/conv_problem.h"

namespace tessera::cpu {

enum class ConvPass : std::uint8_t { Forward, BackwardData, BackwardWeight };
enum class ConvWay : std::uint8_t { ChannelsLast, Any, Own };
enum class ConvChoice : std::uint8_t { ChannelsLast, Any, Own, Rule, Measure };

const char* name_of(ConvWay way);
// From the environment at first.
ConvChoice conv_choice();
// Reads the environment's choice and plans, if that has not been done. Refuses what is wrong with them: the
// same on every rank if it is called before anything is sent.
void read_conv_environment();
void set_conv_choice(ConvChoice choice);

// Adds a file's choices to those of the process (which stay where both have one); refuses a file that is not
// one of ours.
void load_conv_plans(const std::string& path);
// Adds the choices of the process to the file, which is made if it does not exist. Processes may do so at the
// same time.
void save_conv_plans(const std::string& path);
void forget_conv_plans();

// One call: the problem, and the maps or their gradients, of which it matters how they lie.
struct ConvCall {
  ConvPass pass;
  const ConvProblem& problem;
  const Array& x;
  const Array& y;
  bool replicated = false;  // see ConvGeometry
};
// So small that our own loops have done it before a library call has begun.
bool is_tiny(const ConvProblem& problem);
// Runs the call; `run` gives false where a way cannot, and true after the result is written.
// Own loops are always possible.
void run_conv(const ConvCall& call, const std::function<bool(ConvWay)>& run);

}  // namespace tessera::cpu
