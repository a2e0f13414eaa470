// The floor: the least that a closed-loop client on io_uring can do, so that "how far from
// possible" has a number. No parser (every response has the length of the first one), one clock read a turn,
// one histogram, no timeouts. Multishot recv into a ring of provided buffers, one enter a turn.
//
// usage: floorclient [-s] [-c CONNECTIONS] [-d SECONDS] [-p PORT] [-u PATH]
//   -s  never sleep: enter with no wait
// Prints one JSON line. Any fault ends the run with status 1: a floor with faults is not a floor.
#define _GNU_SOURCE
#include "common.h"
#include <liburing.h>

#define BUFFERS 256
#define BUFFER_BYTES 4096
#define GROUP 0
#define SEND_MARK (1ull << 32) // user_data of a send; a receive carries the connection alone

struct connection {
    int fd;
    uint32_t received; // bytes of the response so far
    uint64_t sent_ns;
};

// Log-linear: 128 cells an octave, so a value is off by less than 0.8 %.
#define CELL_BITS 7
#define CELLS (64 << CELL_BITS)
static uint64_t histogram[CELLS], recorded;

static void record(uint64_t ns) {
    unsigned octave = 63u - (unsigned)__builtin_clzll(ns | 1);
    unsigned shift = octave > CELL_BITS ? octave - CELL_BITS : 0;
    histogram[((uint64_t)shift << CELL_BITS) + (ns >> shift)]++;
    recorded++;
}

static double percentile_us(double share) {
    uint64_t want = (uint64_t)((double)recorded * share), seen = 0;
    for (unsigned i = 0; i < CELLS; i++) {
        seen += histogram[i];
        if (seen <= want) continue;
        unsigned shift = i >> CELL_BITS ? (i >> CELL_BITS) - 1 : 0;
        return (double)((uint64_t)(i - (shift << CELL_BITS)) << shift) / 1e3;
    }
    return 0;
}

static struct io_uring uring;
static struct io_uring_buf_ring *buffer_ring;
static char *buffers;
static char request[512];
static size_t request_bytes;
static uint32_t response_bytes;

static void expect(int ok, const char *what, int result) {
    if (ok) return;
    fprintf(stderr, "floorclient: %s: %s\n", what, result < 0 ? strerror(-result) : "short");
    exit(1);
}

static void open_uring(void) {
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
        .cq_entries = 4096};
    int r = io_uring_queue_init_params(1024, &uring, &params);
    expect(r == 0, "io_uring_setup", r);
    io_uring_register_ring_fd(&uring); // optional: saves a descriptor lookup an enter
    // By hand: io_uring_setup_buf_ring is missing in liburing before 2.4.
    buffer_ring = aligned_alloc(4096, BUFFERS * sizeof(struct io_uring_buf));
    buffers = aligned_alloc(4096, BUFFERS * BUFFER_BYTES);
    expect(buffer_ring && buffers, "buffers", -ENOMEM);
    memset(buffer_ring, 0, BUFFERS * sizeof(struct io_uring_buf));
    struct io_uring_buf_reg group = {
        .ring_addr = (uintptr_t)buffer_ring, .ring_entries = BUFFERS, .bgid = GROUP};
    r = io_uring_register_buf_ring(&uring, &group, 0);
    expect(r == 0, "buffer ring", r);
    for (int i = 0; i < BUFFERS; i++)
        io_uring_buf_ring_add(buffer_ring, buffers + (size_t)i * BUFFER_BYTES, BUFFER_BYTES,
                              (unsigned short)i, BUFFERS - 1, i);
    io_uring_buf_ring_advance(buffer_ring, BUFFERS);
}

static struct io_uring_sqe *next_sqe(void) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring);
    if (sqe) return sqe;
    int r = io_uring_submit(&uring);
    expect(r >= 0, "submit", r);
    sqe = io_uring_get_sqe(&uring);
    expect(sqe != 0, "submission queue", -EBUSY);
    return sqe;
}

static void queue_recv(uint64_t index) {
    struct io_uring_sqe *sqe = next_sqe();
    io_uring_prep_recv_multishot(sqe, (int)index, 0, 0, 0);
    sqe->flags |= IOSQE_FIXED_FILE | IOSQE_BUFFER_SELECT;
    sqe->buf_group = GROUP;
    sqe->user_data = index;
}

static void queue_send(uint64_t index) {
    struct io_uring_sqe *sqe = next_sqe();
    io_uring_prep_send(sqe, (int)index, request, request_bytes, MSG_NOSIGNAL | MSG_WAITALL);
    sqe->flags |= IOSQE_FIXED_FILE | IOSQE_CQE_SKIP_SUCCESS;
    sqe->user_data = SEND_MARK | index;
}

// The first response tells the length of all.
static void learn_length(int fd) {
    struct timeval patience = {.tv_usec = 50000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    expect(!send_all(fd, request, request_bytes), "first send", -errno);
    for (;;) { // a response in two segments ends when nothing more comes
        ssize_t n = recv(fd, buffers, BUFFERS * BUFFER_BYTES, 0);
        if (n < 0 && errno == EAGAIN && response_bytes) break;
        expect(n > 0, "first response", n ? -errno : 0);
        response_bytes += (uint32_t)n;
        patience.tv_usec = 5000;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    }
    patience.tv_usec = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

static struct connection *connect_all(int count, int port) {
    struct connection *all = calloc((size_t)count, sizeof *all);
    int *fds = calloc((size_t)count, sizeof *fds), on = 1;
    expect(all && fds, "connections", -ENOMEM);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < count; i++) {
        fds[i] = all[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        expect(fds[i] >= 0, "socket", -errno);
        expect(!connect(fds[i], (struct sockaddr *)&at, sizeof at), "connect", -errno);
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (i == 0) learn_length(fds[i]);
    }
    int r = io_uring_register_files(&uring, fds, (unsigned)count);
    expect(r == 0, "register files", r);
    free(fds);
    return all;
}

// One recv completion. Returns the buffers to give back: 0 or 1.
static int on_recv(struct connection *all, const struct io_uring_cqe *cqe, uint64_t stamp,
                   int given) {
    uint64_t index = cqe->user_data;
    if (!(cqe->flags & IORING_CQE_F_MORE)) queue_recv(index);
    if (cqe->res == -ENOBUFS) return 0;
    expect(cqe->res > 0, "recv", cqe->res);
    int id = (int)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);
    io_uring_buf_ring_add(buffer_ring, buffers + (size_t)id * BUFFER_BYTES, BUFFER_BYTES,
                          (unsigned short)id, BUFFERS - 1, given);
    struct connection *c = &all[index];
    c->received += (uint32_t)cqe->res;
    if (c->received < response_bytes) return 1;
    expect(c->received == response_bytes, "response longer than the first", -EPROTO);
    c->received = 0;
    record(stamp - c->sent_ns);
    c->sent_ns = stamp;
    queue_send(index);
    return 1;
}

static void run(struct connection *all, int count, int spin, uint64_t end_ns) {
    for (int i = 0; i < count; i++) {
        queue_recv((uint64_t)i);
        all[i].sent_ns = now_ns();
        queue_send((uint64_t)i);
    }
    for (uint64_t stamp = 0; stamp < end_ns;) {
        int r = spin ? io_uring_submit_and_get_events(&uring) : io_uring_submit_and_wait(&uring, 1);
        expect(r >= 0 || r == -EINTR, "enter", r);
        stamp = now_ns();
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;
        int given = 0;
        io_uring_for_each_cqe(&uring, head, cqe) {
            seen++;
            if (cqe->user_data & SEND_MARK)
                expect(0, "send", cqe->res); // a good send makes no completion
            else
                given += on_recv(all, cqe, stamp, given);
        }
        if (given) io_uring_buf_ring_advance(buffer_ring, given);
        io_uring_cq_advance(&uring, seen);
    }
}

int main(int argc, char **argv) {
    int count = 64, seconds = 5, port = 9472, spin = 0, option;
    const char *path = "/";
    while ((option = getopt(argc, argv, "sc:d:p:u:")) != -1) switch (option) {
        case 's': spin = 1; break;
        case 'c': count = atoi(optarg); break;
        case 'd': seconds = atoi(optarg); break;
        case 'p': port = atoi(optarg); break;
        case 'u': path = optarg; break;
        default: return 2;
        }
    if (count < 1 || seconds < 1) return 2;
    die_early((unsigned)seconds + 10); // a silent server must not hold the study
    request_bytes = (size_t)snprintf(request, sizeof request,
                                     "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", path, port);
    if (request_bytes >= sizeof request) return 2;
    open_uring();
    struct connection *all = connect_all(count, port);
    run(all, count, spin, now_ns() + (uint64_t)seconds * 1000000000ull);
    // The request that learnt the length was seen by the server too.
    printf("{\"requests\":%llu,\"errors\":0,\"p50_us\":%.2f,\"p99_us\":%.2f}\n",
           (unsigned long long)recorded + 1, percentile_us(0.50), percentile_us(0.99));
    return 0;
}
