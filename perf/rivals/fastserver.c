// The fast endpoint: one thread, epoll, one canned response to every request. Listens on 127.0.0.1.
//
// It is there to be faster than any client, so it reads nothing of a request but its end (a body is
// not supported) and never builds a response. With -s it spins: it then answers without a wake-up,
// and its own sleeping does not show in the latency that a client sees.
//
// With -r it is a recorder of arrivals: for each request, or every EVERY-th, two clocks.
// SO_TIMESTAMPING makes the kernel stamp a segment when it enters the receive path. On loopback that
// is the sender's own send call, so the stamp is the instant of the send whatever this server does.
//
// usage: fastserver -S PAGE [-p PORT] [-b BODY_BYTES] [-s] [-t LIFE_SECONDS]
//                   [-r RECORD [-n ENTRIES] [-k EVERY]]
#define _GNU_SOURCE
#include "common.h"
#include <sys/epoll.h>

// The harness knows this layout. Entry i is request (i + 1) * EVERY.
struct arrival {
    uint64_t kernel_ns; // CLOCK_REALTIME, the kernel's software receive stamp; 0 if there was none
    uint64_t recv_ns;   // CLOCK_MONOTONIC after recv
};

static struct arrival *record; // null: records nothing
static uint64_t entries = 1000000, every = 1;

static uint8_t matched[FD_LIMIT]; // per descriptor, see count_requests
static char input[65536];
static char *response;
static size_t response_bytes;

static void build_response(size_t body_bytes) {
    response = malloc(256 + body_bytes);
    if (!response) fail("malloc");
    int head = snprintf(response, 256,
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\nConnection: keep-alive\r\n\r\n",
                        body_bytes);
    memset(response + head, 'x', body_bytes);
    response_bytes = (size_t)head + body_bytes;
}

static void accept_all(int poll_fd, int listener, struct page *page) {
    for (int fd; (fd = accept_one(listener)) >= 0;) {
        struct epoll_event want = {.events = EPOLLIN, .data.fd = fd};
        matched[fd] = 0;
        add(&page->connections, 1);
        if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &want)) close(fd);
    }
}

static void note(struct page *page, unsigned found, struct arrival arrival) {
    uint64_t before = load(&page->requests), at = load(&page->recorded);
    for (uint64_t i = before + 1; i <= before + found; i++)
        if (i % every == 0 && at < entries) record[at++] = arrival;
    store(&page->recorded, at);
}

// Returns 1 if bytes came.
static int serve(int fd, struct page *page) {
    struct arrival arrival = {0};
    ssize_t n = record ? recv_stamped(fd, input, sizeof input, &arrival.kernel_ns)
                       : recv(fd, input, sizeof input, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) {
        close(fd);
        return 0;
    }
    if (!load(&page->first_recv_ns)) store(&page->first_recv_ns, now_ns());
    unsigned found = count_requests(&matched[fd], input, (size_t)n);
    if (record) {
        arrival.recv_ns = now_ns();
        note(page, found, arrival);
    }
    add(&page->requests, found);
    for (; found; found--) {
        if (!send_all(fd, response, response_bytes)) continue;
        if (errno == EAGAIN) add(&page->send_faults, 1); // it did not read
        close(fd);
        break;
    }
    return 1;
}

int main(int argc, char **argv) {
    int port = 9472, spin = 0, option;
    unsigned life_s = 120;
    size_t body_bytes = 100;
    const char *page_path = 0, *record_path = 0;
    while ((option = getopt(argc, argv, "S:p:b:st:r:n:k:")) != -1) switch (option) {
        case 'S': page_path = optarg; break;
        case 'p': port = atoi(optarg); break;
        case 'b': body_bytes = strtoull(optarg, 0, 10); break;
        case 's': spin = 1; break;
        case 't': life_s = (unsigned)atoi(optarg); break;
        case 'r': record_path = optarg; break;
        case 'n': entries = strtoull(optarg, 0, 10); break;
        case 'k': every = strtoull(optarg, 0, 10); break;
        default: return 2;
        }
    if (!page_path || !life_s || !entries || !every) return 2;
    die_early(life_s);
    struct page *page = open_page(page_path);
    if (record_path) record = share(record_path, entries * sizeof *record);
    build_response(body_bytes);
    int listener = listen_on(port), poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (record) stamp_arrivals(listener);
    struct epoll_event events[512], want = {.events = EPOLLIN, .data.fd = listener};
    if (poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &want)) fail("epoll");
    for (;;) { // ends by SIGTERM, by alarm, or with the parent
        int n = epoll_wait(poll_fd, events, 512, spin ? 0 : -1), received = 0;
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_all(poll_fd, listener, page);
            else
                received |= serve(events[i].data.fd, page);
        }
        // One clock read a turn: with its first receive this bounds the time under load.
        if (received) store(&page->last_recv_ns, now_ns());
    }
}
