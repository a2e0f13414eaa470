// What the programs of this folder share: the counter page, the listener, the search for the end of
// a request.
#ifndef PERF_COMMON_H
#define PERF_COMMON_H
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FD_LIMIT 65536

// A file that the harness reads while the server runs. The server is the only writer, so a counter
// is a plain load and store; both sides use whole, aligned 64-bit words, which never tear.
// The harness knows the order of the fields.
struct page {
    _Atomic uint64_t requests;
    _Atomic uint64_t connections;
    _Atomic uint64_t first_recv_ns; // CLOCK_MONOTONIC, 0 before the first byte of a client
    _Atomic uint64_t last_recv_ns;
    _Atomic uint64_t chunks;       // SSE server: chunks with a token handed to the kernel
    _Atomic uint64_t pace_slips;   // SSE server: instants given up when 1 ms or more behind
    _Atomic uint64_t send_faults;  // connections cut for what the client did, see each server
    _Atomic uint64_t recorded;     // fast server with -r, SSE server with -T: entries of the record
    _Atomic uint64_t events;       // SSE server: chunks, and those that carry no token
};

static inline uint64_t load(_Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline void store(_Atomic uint64_t *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static inline void add(_Atomic uint64_t *word, uint64_t n) {
    store(word, load(word) + n);
}

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

// A spinning server that outlives the study would spoil every later measurement. It dies with its
// parent, and after `limit_s` seconds whatever happens.
static inline void die_early(unsigned limit_s) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL)) fail("prctl");
    alarm(limit_s);
    signal(SIGPIPE, SIG_IGN);
}

// A file in memory that another process may read at any time. Populated, so that no page fault falls
// into a run.
static inline void *share(const char *path, size_t bytes) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) fail(path);
    void *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED) fail("mmap");
    close(fd);
    return memory;
}

static inline struct page *open_page(const char *path) {
    return share(path, 4096);
}

static inline int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) fail("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 4096)) fail("listen");
    return fd;
}

// A client that stops reading would block the one thread; it is cut after a second instead.
static inline int accept_one(int listener) {
    int fd = accept4(listener, 0, 0, SOCK_CLOEXEC), on = 1;
    if (fd < 0) return -1;
    struct timeval second = {.tv_sec = 1};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    if (fd < FD_LIMIT) return fd;
    close(fd);
    return -1;
}

// On the listener: accepted sockets inherit it, and bytes may be there before accept returns.
static inline void stamp_arrivals(int listener) {
    int flags = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    if (setsockopt(listener, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags))
        fail("SO_TIMESTAMPING");
}

// recv that also tells when the kernel got the last of these bytes: CLOCK_REALTIME, 0 if unstamped.
static inline ssize_t recv_stamped(int fd, char *into, size_t room, uint64_t *kernel_ns) {
    _Alignas(struct cmsghdr) char control[256];
    struct iovec piece = {into, room};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT);
    *kernel_ns = 0;
    if (n <= 0) return n;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_TIMESTAMPING) continue;
        struct timespec stamp;
        memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
        *kernel_ns = (uint64_t)stamp.tv_sec * 1000000000ull + (uint64_t)stamp.tv_nsec;
    }
    return n;
}

// -1 if the client is gone, which is its right, or did not read for a second (errno EAGAIN).
static inline int send_all(int fd, const char *bytes, size_t n) {
    while (n) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return -1;
        bytes += sent;
        n -= (size_t)sent;
    }
    return 0;
}

// How many requests end in these bytes. A request is a head without a body, so it ends at a blank
// line. `matched` is how much of CR LF CR LF the bytes before ended with: the reads of a connection
// may be cut anywhere, and no byte has to be kept.
static inline unsigned count_requests(uint8_t *matched, const char *bytes, size_t n) {
    static const char END[4] = {'\r', '\n', '\r', '\n'};
    unsigned found = 0;
    size_t i = 0;
    if (*matched == 0) {
        const char *end;
        while ((end = memmem(bytes + i, n - i, END, 4))) {
            found++;
            i = (size_t)(end + 4 - bytes);
        }
    }
    for (; i < n; i++) {
        if (bytes[i] == END[*matched]) {
            if (++*matched < 4) continue;
            found++;
            *matched = 0;
        } else {
            *matched = bytes[i] == '\r';
        }
    }
    return found;
}
#endif
