// Ranks other than 0 print only failures, each with its rank; rank 0's own report is Catch's.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdio>

#include "tests/support/harness.h"

namespace {

int rank_of_process() {
  int rank = 0;
  MPI_Comm_rank(tessera::harness::comm(), &rank);
  return rank;
}

class RankListener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    TestEventListenerBase::testCaseStarting(info);
    name_ = info.name;
  }

  bool assertionEnded(const Catch::AssertionStats& stats) override {
    const Catch::AssertionResult& result = stats.assertionResult;
    if (result.isOk()) return false;
    if (!(result.m_info.resultDisposition & Catch::ResultDisposition::ContinueOnFailure) ||
        result.getResultType() == Catch::ResultWas::ThrewException)
      tessera::harness::note_hard_failure();
    if (rank_of_process() != 0) print(stats);
    return false;
  }

  // Catch runs a case once per leaf section; the case itself is the outermost section of each run.
  void sectionStarting(const Catch::SectionInfo&) override { ++depth_; }
  void sectionEnded(const Catch::SectionStats&) override {
    if (--depth_ == 0) tessera::harness::end_of_pass(name_.c_str());
  }

 private:
  void print(const Catch::AssertionStats& stats) const {
    const Catch::AssertionResult& result = stats.assertionResult;
    const Catch::SourceLineInfo where = result.getSourceInfo();
    std::string text = fmt::format("[rank {}] {}:{}: \"{}\" FAILED: {}", rank_of_process(), where.file,
                                   where.line, name_, result.getExpressionInMacro());
    if (result.hasExpandedExpression()) text += fmt::format("\n  with {}", result.getExpandedExpression());
    if (result.hasMessage()) text += fmt::format("\n  {}", std::string(result.getMessage()));
    for (const auto& info : stats.infoMessages) {
      if (!result.hasMessage() || info.message != std::string(result.getMessage()))
        text += fmt::format("\n  {}", info.message);
    }
    text += '\n';
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }

  std::string name_;
  int depth_ = 0;
};

}  // namespace

CATCH_REGISTER_LISTENER(RankListener)
