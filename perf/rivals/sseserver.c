// The paced SSE endpoint: every request starts a stream of chunks; all streams together get -r
// chunks a second, one at a time, in turn. Listens on 127.0.0.1. It spins while a stream is open,
// so that a chunk leaves at its instant; it sleeps otherwise.
//
// One chunk is one SSE event in one HTTP chunk in one send, as inference servers do it.
//
// usage: sseserver -S PAGE [-p PORT] [-r CHUNKS_PER_SECOND] [-n CHUNKS_PER_RESPONSE]
//                  [-t LIFE_SECONDS]
#define _GNU_SOURCE
#include "common.h"
#include <sys/epoll.h>

static const char HEAD[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
static const char EVENT[] = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\","
                            "\"created\":1767225600,\"model\":\"example\","
                            "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" hello\"},"
                            "\"finish_reason\":null}]}\n\n";
#define SLIP_NS 1000000ull

static uint8_t matched[FD_LIMIT];
static uint32_t left[FD_LIMIT];     // chunks still to send on this descriptor; 0 = no stream
static uint32_t place[FD_LIMIT];    // where in `streams` it stands, valid while left > 0
static int streams[FD_LIMIT];       // descriptors with an open stream
static uint32_t stream_count, turn; // turn: whose chunk is next
static char input[65536], chunk[512], last_chunk[512];
static size_t chunk_bytes, last_chunk_bytes;

static void drop_stream(int fd) {
    if (!left[fd]) return;
    left[fd] = 0;
    stream_count--;
    int moved = streams[stream_count];
    streams[place[fd]] = moved;
    place[moved] = place[fd];
}

static void cut(int fd) {
    drop_stream(fd);
    close(fd);
}

static void accept_all(int poll_fd, int listener, struct page *page) {
    for (int fd; (fd = accept_one(listener)) >= 0;) {
        struct epoll_event want = {.events = EPOLLIN, .data.fd = fd};
        matched[fd] = 0;
        left[fd] = 0;
        add(&page->connections, 1);
        if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &want)) close(fd);
    }
}

static void serve(int fd, uint32_t chunks_per_response, struct page *page) {
    ssize_t n = recv(fd, input, sizeof input, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        cut(fd);
        return;
    }
    if (!load(&page->first_recv_ns)) store(&page->first_recv_ns, now_ns());
    unsigned found = count_requests(&matched[fd], input, (size_t)n);
    if (!found) return;
    add(&page->requests, found);
    // A second request before the end of the stream is a fault: no client of ours pipelines.
    int is_pipelined = found > 1 || left[fd];
    if (is_pipelined || send_all(fd, HEAD, sizeof HEAD - 1)) {
        if (is_pipelined || errno == EAGAIN) add(&page->send_faults, 1);
        cut(fd);
        return;
    }
    left[fd] = chunks_per_response;
    place[fd] = stream_count;
    streams[stream_count++] = fd;
}

static void send_chunk(struct page *page) {
    if (turn >= stream_count) turn = 0;
    int fd = streams[turn], is_last = left[fd] == 1;
    if (send_all(fd, is_last ? last_chunk : chunk, is_last ? last_chunk_bytes : chunk_bytes)) {
        if (errno == EAGAIN) add(&page->send_faults, 1); // it did not read
        cut(fd);
        return;
    }
    add(&page->chunks, 1);
    if (is_last)
        drop_stream(fd); // the stream moved here takes this turn
    else {
        left[fd]--;
        turn++;
    }
}

int main(int argc, char **argv) {
    int port = 9473, option;
    unsigned life_s = 120;
    uint64_t rate = 60000;
    uint32_t chunks_per_response = 64;
    const char *page_path = 0;
    while ((option = getopt(argc, argv, "S:p:r:n:t:")) != -1) switch (option) {
        case 'S': page_path = optarg; break;
        case 'p': port = atoi(optarg); break;
        case 'r': rate = strtoull(optarg, 0, 10); break;
        case 'n': chunks_per_response = (uint32_t)strtoul(optarg, 0, 10); break;
        case 't': life_s = (unsigned)atoi(optarg); break;
        default: return 2;
        }
    if (!page_path || !life_s || !rate || !chunks_per_response) return 2;
    die_early(life_s);
    struct page *page = open_page(page_path);
    chunk_bytes = (size_t)snprintf(chunk, sizeof chunk, "%zx\r\n%s\r\n", sizeof EVENT - 1, EVENT);
    last_chunk_bytes = (size_t)snprintf(last_chunk, sizeof last_chunk, "%s0\r\n\r\n", chunk);
    int listener = listen_on(port), poll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[512], want = {.events = EPOLLIN, .data.fd = listener};
    if (poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &want)) fail("epoll");
    uint64_t gap_ns = 1000000000ull / rate, due_ns = now_ns();
    for (;;) { // ends by SIGTERM, by alarm, or with the parent
        int was_pacing = stream_count > 0;
        int n = epoll_wait(poll_fd, events, 512, was_pacing ? 0 : -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_all(poll_fd, listener, page);
            else
                serve(events[i].data.fd, chunks_per_response, page);
        }
        uint64_t now = now_ns();
        if (now > due_ns + SLIP_NS) { // instants in a time without streams are nobody's
            if (was_pacing) add(&page->pace_slips, (now - due_ns) / gap_ns);
            due_ns = now;
        }
        // Bounded work a turn, so that a burst of requests is still read.
        for (int k = 0; k < 64 && stream_count && due_ns <= now; k++, due_ns += gap_ns)
            send_chunk(page);
        if (stream_count) store(&page->last_recv_ns, now);
    }
}
