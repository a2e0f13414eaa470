// The reference of an open loop: what a sender that only watches the clock can do on this machine.
// One thread busy-waits on CLOCK_MONOTONIC and sends each request at its instant over a pool of
// open connections. It draws the whole schedule before and writes it down with the instants of its
// sends, so that the recorder and the analysis can be checked against something known.
//
// usage: refsender [-e] [-r RATE] [-d SECONDS] [-c CONNECTIONS] [-p PORT] [-s SEED] -o LOG
//   -e  exponential gaps (Poisson); without it all gaps are equal
// LOG: u64 count, then for each request u64 due_ns, sent_ns since the start. One JSON line on stdout.
#define _GNU_SOURCE
#include "common.h"
#include <math.h>
#include <sys/epoll.h>

#define POLL_MARGIN_NS 4000 // nearer to the next instant than this, only the clock is watched
#define START_NS 200000000  // after the connections are open: the server has accepted them by then

struct request {
    uint64_t due_ns, sent_ns;
};

static uint64_t random_state;

// Steele, Lea and Flood's splitmix64. In (0, 1): its logarithm is finite.
static double uniform(void) {
    uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) / 9007199254740992.0;
}

// Sums in double: off by less than 1 ns in a run of hours.
static struct request *draw(uint64_t count, double rate, int exponential) {
    struct request *all = calloc(count, sizeof *all);
    if (!all) fail("schedule");
    double at_ns = 0;
    for (uint64_t i = 0; i < count; i++) {
        all[i].due_ns = (uint64_t)at_ns;
        at_ns += 1e9 / rate * (exponential ? -log(uniform()) : 1);
    }
    return all;
}

struct pool {
    int poll_fd;
    int *idle; // a stack: the one used last is warm
    int idle_count;
    uint64_t received; // responses; each comes in one segment
};

static void open_pool(struct pool *pool, int count, int port) {
    pool->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    pool->idle = calloc((size_t)count, sizeof *pool->idle);
    if (pool->poll_fd < 0 || !pool->idle) fail("pool");
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < count; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
        if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) fail("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event want = {.events = EPOLLIN, .data.fd = fd};
        if (epoll_ctl(pool->poll_fd, EPOLL_CTL_ADD, fd, &want)) fail("epoll");
        pool->idle[pool->idle_count++] = fd;
    }
}

static void receive(struct pool *pool) {
    static char input[65536];
    struct epoll_event events[8];
    int n = epoll_wait(pool->poll_fd, events, 8, 0);
    for (int i = 0; i < n; i++) {
        int fd = events[i].data.fd;
        ssize_t bytes = recv(fd, input, sizeof input, MSG_DONTWAIT);
        if (bytes < 0 && errno == EAGAIN) continue;
        if (bytes <= 0) fail("recv");
        pool->idle[pool->idle_count++] = fd;
        pool->received++;
    }
}

// Returns how often an instant had passed and no connection was idle: then the pool is too small.
static uint64_t run(struct pool *pool, struct request *all, uint64_t count, int port) {
    char head[128];
    size_t bytes = (size_t)snprintf(head, sizeof head,
                                    "GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", port);
    uint64_t start = now_ns() + START_NS, starved = 0, last = UINT64_MAX;
    for (uint64_t i = 0; i < count;) {
        uint64_t now = now_ns(), due = start + all[i].due_ns;
        if (now >= due && pool->idle_count) {
            all[i++].sent_ns = now - start;
            if (send_all(pool->idle[--pool->idle_count], head, bytes)) fail("send");
        } else if (now >= due || due - now >= POLL_MARGIN_NS) {
            starved += now >= due && last != i;
            if (now >= due) last = i;
            receive(pool);
        }
    }
    for (uint64_t end = now_ns() + 1000000000; pool->received < count && now_ns() < end;)
        receive(pool);
    return starved;
}

int main(int argc, char **argv) {
    int connections = 64, seconds = 5, port = 9472, exponential = 0, option;
    double rate = 1000;
    const char *log_path = 0;
    while ((option = getopt(argc, argv, "er:d:c:p:s:o:")) != -1) switch (option) {
        case 'e': exponential = 1; break;
        case 'r': rate = atof(optarg); break;
        case 'd': seconds = atoi(optarg); break;
        case 'c': connections = atoi(optarg); break;
        case 'p': port = atoi(optarg); break;
        case 's': random_state = strtoull(optarg, 0, 10); break;
        case 'o': log_path = optarg; break;
        default: return 2;
        }
    uint64_t count = (uint64_t)(rate * seconds);
    if (connections < 1 || seconds < 1 || !count || !log_path) return 2;
    die_early((unsigned)seconds * 2 + 10);
    struct request *all = draw(count, rate, exponential);
    struct pool pool = {0};
    open_pool(&pool, connections, port);
    uint64_t starved = run(&pool, all, count, port);
    FILE *log = fopen(log_path, "wb");
    if (!log || fwrite(&count, sizeof count, 1, log) != 1 ||
        fwrite(all, sizeof *all, count, log) != count || fclose(log))
        fail(log_path);
    printf("{\"requests\":%llu,\"errors\":%llu,\"starved\":%llu}\n", (unsigned long long)count,
           (unsigned long long)(count - pool.received), (unsigned long long)starved);
    return 0;
}
