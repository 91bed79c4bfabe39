// Smooths noisy values on a cloud of points that is split over the ranks: every point takes the mean of its
// nearest neighbours.
#include <tessera/tessera.h>
namespace ts = tessera;

int main(int argc, char** argv) {
  return ts::run_program(argc, argv, [](ts::Runtime& runtime, int count, char** arguments) {
    TS_CHECK(count == 1, "points", "\"{}\" was given, no arguments are allowed", arguments[1]);
    ts::DeviceMesh mesh(runtime.world(), {{"domain", runtime.size()}});
    ts::Generator random(5);
    const ts::SpecPtr rows = ts::ShardSpec::make(mesh, {ts::Shard(0)}, {3000, 3});
    ts::Tensor points = ts::rand({3000, 3}, random, ts::DType::F32, rows);  // every rank its own rows
    ts::Tensor height = ts::slice(points, 1, 2, 3);
    ts::Tensor noise = ts::randn({3000, 3}, random, ts::DType::F32, rows);
    ts::Tensor noisy = height + 0.2 * ts::slice(noise, 1, 2, 3);

    ts::NearestNeighbors near = ts::knn(points, points, 12);  // numbers of rows of the whole cloud
    ts::Tensor smooth = ts::mean(ts::embedding(noisy, near.indices), {1});
    ts::log_info("error {:.4f}, smoothed {:.4f}", ts::mse_loss(noisy, height).item(),
                 ts::mse_loss(smooth, height).item());

    ts::NeighborLists close = ts::radius_search(points, points, 0.1);  // as many as there are
    ts::log_info("{} neighbours within 0.1, at most {} of one point", close.indices.size(0),
                 ts::amax(close.counts).item());
    return 0;
  });
}
