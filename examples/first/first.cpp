#include <tessera/tessera.h>
namespace ts = tessera;

int main(int argc, char** argv) {
  return ts::run_program(argc, argv, [](ts::Runtime& runtime, int, char**) {
    ts::DeviceMesh mesh(runtime.world(), {{"domain", runtime.size()}});
    ts::Generator random(7);
    ts::Tensor map = ts::randn({1, 3, 73, 144}, random);  // one sample
    ts::Tensor x =
        ts::train::scatter(map, 0, mesh, {ts::Shard(2)});  // every rank its own rows, uneven is fine

    ts::nn::Sequential model;  // knows nothing of ranks
    model.add<ts::nn::Conv2d>(3, 16, ts::nn::ConvLayerOptions{.kernel = {3, 3}, .padding = {1}});
    model.add<ts::nn::Gelu>();
    model.add<ts::nn::Conv2d>(16, 3, ts::nn::ConvLayerOptions{.kernel = {3, 3}, .padding = {1}});
    ts::train::DataParallel parallel(model, mesh);  // gradients: one message, during backward
    ts::optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});

    for (int step = 1; step <= 5; ++step) {
      ts::Tensor loss =
          ts::mse_loss(model.forward(x), x);  // halos travel, the numbers are those of one device
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      ts::log_info("step {}: loss {:.5f}", step, loss.item());  // the whole loss, on every rank
    }
    return 0;
  });
}
