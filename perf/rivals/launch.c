// Runs one program pinned to its cores and writes what it cost as one JSON line to RESULT.
//
// Why not from the harness: the peak memory that wait4 reports includes the pages of the process
// that forked, which for an interpreter is more than a small client uses; and the clock has to be
// read right before exec.
//
// usage: launch CORE[,CORE...] LIMIT_SECONDS RESULT PROGRAM [ARGUMENT...]
// A program that outlives the limit is killed. It dies with this process, as this one does with its
// parent.
#define _GNU_SOURCE
#include "common.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

static volatile sig_atomic_t child, is_killed;

static void on_alarm(int signal_number) {
    (void)signal_number;
    is_killed = 1;
    if (child > 0) kill(child, SIGKILL);
}

static double seconds(struct timeval t) {
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    die_early(0);
    signal(SIGPIPE, SIG_DFL); // exec keeps an ignored signal ignored; programs expect the default
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (char *list = argv[1], *core; (core = strsep(&list, ","));)
        CPU_SET((unsigned)atoi(core), &cores);
    if (sched_setaffinity(0, sizeof cores, &cores)) fail("sched_setaffinity");
    int result = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (result < 0) fail(argv[3]);
    _Atomic uint64_t *exec_ns =
        mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (exec_ns == MAP_FAILED) fail("mmap");
    signal(SIGALRM, on_alarm);
    child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        store(exec_ns, now_ns());
        execvp(argv[4], argv + 4);
        perror(argv[4]);
        _exit(127);
    }
    alarm((unsigned)atoi(argv[2]));
    int status;
    struct rusage used;
    while (wait4(child, &status, 0, &used) < 0)
        if (errno != EINTR) fail("wait4");
    uint64_t end_ns = now_ns();
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    dprintf(result,
            "{\"exit\":%d,\"is_killed\":%d,\"exec_ns\":%llu,\"end_ns\":%llu,\"user_s\":%.6f,"
            "\"sys_s\":%.6f,\"rss_kib\":%ld,\"switches\":%ld,\"preemptions\":%ld}\n",
            code, (int)is_killed, (unsigned long long)load(exec_ns), (unsigned long long)end_ns,
            seconds(used.ru_utime), seconds(used.ru_stime), used.ru_maxrss, used.ru_nvcsw,
            used.ru_nivcsw);
    return 0;
}
