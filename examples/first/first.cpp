#include <tessera/tessera.h>
using namespace tessera;
int main(int argc, char** argv) {
  return run_program(argc, argv, [](Runtime& runtime, int, char**) {
    DeviceMesh mesh(runtime.world(), {{"domain", runtime.size()}});
    Generator random(7);
    Tensor x = train::scatter(randn({1, 3, 72, 144}, random), 0, mesh, {Shard(2)});  // each rank its rows
    nn::ViT model({.image = {72, 144}, .patch = {8, 8}, .width = 48, .out_channels = 3});  // knows no ranks
    train::DataParallel parallel(model, mesh);  // gradients: one message, during backward
    optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
    for (int step = 1; step <= 5; ++step) {
      Tensor loss = mse_loss(model(x), x);  // ranks exchange what they need: the numbers of one device
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      log_info("step {}: loss {:.5f}", step, loss.item());  // of the whole map, on every rank
    }
    return 0;
  });
}
