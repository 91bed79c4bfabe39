#include "ops/matmul/equation.h"

#include "runtime/error.h"

namespace tessera {
namespace {

constexpr char kEllipsis = '.';

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// One term without spaces, its ellipsis as a single character. `at`: where it starts in the equation.
std::string parse_term(std::string_view term, std::size_t at, std::string_view equation) {
  std::string labels;
  for (std::size_t i = 0; i < term.size(); ++i) {
    const char c = term[i];
    if (c == ' ') continue;
    if (c == '.') {
      TS_CHECK(labels.find(kEllipsis) == std::string::npos, "einsum",
               "a second '.' or \"...\" in a term, at position {} of \"{}\"", at + i, equation);
      TS_CHECK(term.substr(i, 3) == "...", "einsum",
               "a '.' that is not part of \"...\", at position {} of \"{}\"", at + i, equation);
      i += 2;
    } else {
      TS_CHECK(is_letter(c), "einsum", "subscripts must be letters, found '{}' at position {} of \"{}\"", c,
               at + i, equation);
    }
    labels += c;
  }
  return labels;
}

// Replaces the ellipsis by its last `count` of `all` dims.
std::string spread(const std::string& labels, int count, int all) {
  std::string out;
  for (char c : labels) {
    if (c != kEllipsis) out += c;
    if (c == kEllipsis)
      for (int i = all - count; i < all; ++i) out += static_cast<char>('0' + i);
  }
  return out;
}

std::string implicit_output(const std::vector<std::string>& operands, int ellipsis) {
  std::string output = spread(".", ellipsis, ellipsis);
  for (char c = 'A'; c <= 'z'; ++c) {
    std::ptrdiff_t times = 0;
    for (const std::string& labels : operands) times += std::count(labels.begin(), labels.end(), c);
    if (is_letter(c) && times == 1) output += c;
  }
  return output;
}

void check_output(const std::string& output, const std::vector<std::string>& operands,
                  std::string_view equation) {
  for (char c : output) {
    TS_CHECK(std::count(output.begin(), output.end(), c) == 1, "einsum",
             "subscript {} appears more than once in the output of \"{}\"", c, equation);
    const bool known =
        c < 'A' || std::any_of(operands.begin(), operands.end(), [c](const std::string& labels) {
          return labels.find(c) != std::string::npos;
        });
    TS_CHECK(known, "einsum", "output subscript {} of \"{}\" appears in no operand", c, equation);
  }
}

}  // namespace

Equation parse_equation(std::string_view text, const std::vector<Dims>& sizes) {
  const std::size_t arrow = text.find("->");
  const std::string_view left = text.substr(0, arrow);
  const auto terms = static_cast<std::size_t>(std::count(left.begin(), left.end(), ',')) + 1;
  TS_CHECK(terms == sizes.size(), "einsum", "\"{}\" is for {} operands, {} given", text, terms, sizes.size());
  Equation e;
  e.operands.reserve(terms);
  int longest = 0;  // dims under an ellipsis
  std::size_t at = 0;
  for (std::size_t i = 0; i < terms; ++i) {
    const std::size_t end = std::min(left.find(',', at), left.size());
    e.operands.push_back(parse_term(left.substr(at, end - at), at, text));
    at = end + 1;
    const bool open = e.operands[i].find(kEllipsis) != std::string::npos;
    const int letters = static_cast<int>(e.operands[i].size()) - (open ? 1 : 0);
    TS_CHECK(letters <= sizes[i].size() && (open || letters == sizes[i].size()), "einsum",
             "{} subscripts{} for operand {} of sizes {} in \"{}\"", letters, open ? " and an ellipsis" : "",
             i, sizes[i].str(), text);
    longest = std::max(longest, sizes[i].size() - letters);
  }
  for (std::size_t i = 0; i < terms; ++i)
    if (e.operands[i].find(kEllipsis) != std::string::npos)
      e.operands[i] =
          spread(e.operands[i], sizes[i].size() - static_cast<int>(e.operands[i].size()) + 1, longest);
  if (arrow == std::string_view::npos) {
    e.output = implicit_output(e.operands, longest);
  } else {
    e.output = spread(parse_term(text.substr(arrow + 2), arrow + 2, text), longest, longest);
    check_output(e.output, e.operands, text);
  }
  return e;
}

}  // namespace tessera
