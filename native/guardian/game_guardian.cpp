// SPDX-License-Identifier: Apache-2.0
// A process between this library's process and a game's: it ends the game when the library's
// process has ended in any way.
//
// ViZDoom starts the program that it is given: this one, as FOLDER/run. This program starts
// FOLDER/game in that folder, with the same arguments, waits for its end, and ends with it. If the
// process that started it dies first, the game is killed, and the remains of both are removed: the
// folder, and the game's shared memory, whose names end in the value of +viz_instance_id. It uses
// the C library alone, so that it can be linked statically.
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int kNotStarted = 127;
constexpr int kSignals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
constexpr const char kFolderName[] = "rollouts-doom-";  // then PID-..., of the process that made it
constexpr const char* kSharedMemory[] = {"ViZDoomSM", "ViZDoomMQCtr", "ViZDoomMQDoom"};

// Closes what it inherited from the process that started it: sockets would stay open with the game.
void CloseInherited() {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0) return;
#endif
  const long most = sysconf(_SC_OPEN_MAX);
  for (int fd = 3; fd < (most > 0 && most < 65536 ? most : 65536); ++fd) close(fd);
}

[[noreturn]] void BecomeGame(const char* folder, char** argv, pid_t guardian) {
  // the game is killed when its parent, the guardian, ends; the guardian may be gone already
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guardian) _exit(kNotStarted);
  char game[PATH_MAX];
  char link[PATH_MAX];
  snprintf(link, sizeof(link), "%s/game", folder);
  const ssize_t length = readlink(link, game, sizeof(game) - 1);
  if (length <= 0 || chdir(folder) != 0) _exit(kNotStarted);
  game[length] = '\0';
  // the game's output is read when it ends too soon
  const int log = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int nothing = open("/dev/null", O_RDONLY);
  if (log >= 0) dup2(log, 1);
  if (log >= 0) dup2(log, 2);
  if (nothing >= 0) dup2(nothing, 0);
  CloseInherited();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // the game finds its own files by this name
  argv[0] = game;
  execv(game, argv);
  _exit(kNotStarted);
}

void RemoveSharedMemory(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], "+viz_instance_id") != 0) continue;
    for (const char* base : kSharedMemory) {
      char path[PATH_MAX];
      snprintf(path, sizeof(path), "/dev/shm/%s%s", base, argv[i + 1]);
      unlink(path);
    }
  }
}

void RemoveFolder(const char* folder) {
  DIR* const entries = opendir(folder);
  if (!entries) return;
  while (const dirent* entry = readdir(entries)) {
    // the game leaves folders, which are empty
    if (unlinkat(dirfd(entries), entry->d_name, 0) != 0) {
      unlinkat(dirfd(entries), entry->d_name, AT_REMOVEDIR);
    }
  }
  closedir(entries);
  rmdir(folder);
}

// Writes this process's id for the process that waits for the game: a SIGTERM to this id ends both.
void WriteId(const char* folder) {
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "%s/pid", folder);
  FILE* const file = fopen(path, "w");
  if (!file) return;
  fprintf(file, "%d\n", static_cast<int>(getpid()));
  fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  char folder[PATH_MAX];
  const int length = argc > 0 ? snprintf(folder, sizeof(folder), "%s", argv[0]) : 0;
  char* const slash = length < PATH_MAX && length > 0 ? strrchr(folder, '/') : nullptr;
  if (!slash) return kNotStarted;
  *slash = '\0';
  // refuses a folder that was not made for a game: nothing is started or removed in it
  const char* const before = strrchr(folder, '/');
  if (!before || strncmp(before + 1, kFolderName, strlen(kFolderName)) != 0) return kNotStarted;

  // a terminal's Ctrl-C is then sent only to the process that started this one
  setsid();
  CloseInherited();
  sigset_t signals;
  sigemptyset(&signals);
  for (const int one : kSignals) sigaddset(&signals, one);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);

  WriteId(folder);
  const bool orphan = getppid() != atoi(before + 1 + strlen(kFolderName));
  const pid_t guardian = getpid();
  const pid_t game = orphan ? -1 : fork();
  if (game == 0) BecomeGame(folder, argv, guardian);

  int status = 0;
  while (game > 0) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal == SIGCHLD) {
      if (waitpid(game, &status, WNOHANG) != game) continue;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    kill(game, SIGKILL);
    waitpid(game, &status, 0);
    break;
  }
  RemoveSharedMemory(argc, argv);
  RemoveFolder(folder);
  return kNotStarted;
}
