// For what ends a process.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace tessera {

// Whether a process of its own comes to the end of `work`.
template <class Work>
bool survives(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    std::fclose(stderr);  // the reason is printed
    for (const int signal : {SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace tessera
