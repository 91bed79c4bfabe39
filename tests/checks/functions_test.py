"""tools/functions.py on the forms that C++ gives to functions, and on what only looks like one."""
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "tools"))
from functions import functions  # noqa: E402

SOURCE = r"""
// void comment(int a) {
/* void comment() { */
#define MACRO(a, b) \
  void macro() {    \
  }
namespace {
constexpr int kTable[] = {1, 2, 3};
constexpr char kOpen = '{', kQuote = '"';
const char* kText = R"(void text() { )";
const std::vector<Row> kRows{{f(1), 2}, {g(3), 4}};
void plain() {}
}  // namespace
namespace a::b {
template <class T, int n = (3 > 2)>
std::map<T, std::vector<int>> generic(const std::map<T, int>& m, std::function<void(int, int)> f = [](int, int) {},
                                      int big = 1'000) {
  if (m.empty()) {
    return {};
  }
  auto lambda = [&](int x, int y) { return x < y ? "}" : "{"; };
  return {};
}
struct Point {
  int x = 0;
  std::array<int, 2> pair{{1, 2}};
  Point() = default;
  Point(int a, int b) : x(a), pair{a, b} {}
  explicit Point(const Point* p)
      : x(p->x), pair{p->pair} {
    ++x;
  }
  ~Point() { x = 0; }
  bool operator==(const Point& o) const { return x == o.x; }
  int operator()(int i, int j) const noexcept { return i + j; }
  operator bool() const { return x != 0; }
  virtual void pure(int, int, int) = 0;
 public:
  auto trailing(int i) const -> std::vector<int> {
    return {i};
  }
};
enum class Kind : std::uint8_t { None, Tanh };
extern "C" int c_function(void* data) { return 0; }
template <>
class Special<int> : public Base<int, 2> {
 public:
  void inside() override {
  }
};
TEST_CASE("braces { in a name", "[tag]") {
  SECTION("one") {
  }
}
}  // namespace a::b
"""
EXPECTED = [
    ("plain", 1, 0),
    ("generic", 9, 3),
    ("Point", 1, 2),
    ("Point", 4, 1),
    ("~Point", 1, 0),
    ("operator==", 1, 1),
    ("operator()", 1, 2),
    ("operator bool", 1, 0),
    ("trailing", 3, 1),
    ("c_function", 1, 1),
    ("inside", 2, 0),
    ("TEST_CASE", 4, 0),  # texts are blanked out
]


def main():
    found = functions(SOURCE)
    got = [(f.name, f.lines, f.parameters) for f in found]
    for g, e in zip(got + [None] * len(EXPECTED), EXPECTED + [None] * len(got)):
        if g is None and e is None:
            break
        assert g == e, f"got {g}, expected {e}"
    lines = SOURCE.splitlines()
    for f in found:
        name = f.name.split("(")[0]
        assert any(name in line for line in lines[f.line - 1 : f.line + 1]), f"{f.name} is not at line {f.line}"


main()
