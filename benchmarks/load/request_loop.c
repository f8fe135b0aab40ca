/* A closed loop of Kafka requests: C connections, D requests in flight on each, frames sent as they are.
 *
 *   request_loop HOST PORT FRAMES_FILE --connections C --depth D --seconds S --requests R --gap-us G
 *
 * FRAMES_FILE holds whole frames (size in front), sent in rotation. Prints `ready` once every connection has sent
 * its first request, and in the end one line of JSON. Ends after S seconds or R answers, whichever comes first.
 * With --gap-us a connection waits that long between an answer and its next request (one connection only).
 * With no frames it only holds the connections open for S seconds. request_loop.py says the same in Python. */
#include "loop.h"

#define BUFFER_BYTES (256 * 1024)
#define MAX_DEPTH 64

struct connection {
    int fd;
    uint32_t header_seen, header; /* of the 4 bytes that say an answer's size */
    int64_t body_left;
    uint64_t sent_at_ns[MAX_DEPTH];
    unsigned first, in_flight;
};

static char buffer[BUFFER_BYTES];
static unsigned next_frame;

static void send_one(struct connection *c) {
    unsigned number = next_frame;
    next_frame = (next_frame + 1) % frame_count;
    c->sent_at_ns[(c->first + c->in_flight++) % MAX_DEPTH] = now_ns();
    send_all(c->fd, frames + frame_at[number], frame_bytes[number]);
}

static void count_answer(struct connection *c) {
    count_time(now_ns() - c->sent_at_ns[c->first]);
    c->first = (c->first + 1) % MAX_DEPTH;
    c->in_flight--;
}

/* Take what has arrived; the number of answers that ended with it. */
static unsigned receive(struct connection *c) {
    unsigned ended = 0;
    ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    if (n <= 0) {
        fprintf(stderr, "the server closed a connection after %llu answers\n", (unsigned long long)answers);
        exit(1);
    }
    received_bytes += (uint64_t)n;
    for (ssize_t at = 0; at < n;) {
        if (c->header_seen < 4) {
            c->header = c->header << 8 | (uint8_t)buffer[at++];
            if (++c->header_seen == 4) c->body_left = c->header;
            if (c->header_seen < 4 || c->body_left) continue;
        } else {
            int64_t step = n - at < c->body_left ? n - at : c->body_left;
            at += step;
            c->body_left -= step;
        }
        if (c->body_left == 0) {
            c->header_seen = c->header = 0;
            count_answer(c);
            ended++;
        }
    }
    return ended;
}

static void loop(struct connection *all, unsigned count, unsigned depth, uint64_t end_ns, uint64_t limit) {
    struct epoll_event events[512];
    int poller = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, all[i].fd, &event)) fail("epoll_ctl");
        for (unsigned k = 0; frame_count && k < depth; k++) send_one(&all[i]);
    }
    ready();
    for (uint64_t now; answers < limit && (now = now_ns()) < end_ns;) {
        int n = epoll_wait(poller, events, 512, (int)((end_ns - now) / 1000000) + 1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            for (unsigned ended = receive(c); ended; ended--) send_one(c);
        }
    }
}

static void paced(struct connection *c, unsigned gap_us, uint64_t end_ns, uint64_t limit) {
    struct timespec gap = {.tv_sec = gap_us / 1000000, .tv_nsec = (long)(gap_us % 1000000) * 1000};
    ready();
    while (answers < limit && now_ns() < end_ns) {
        send_one(c);
        while (!receive(c)) {
        }
        nanosleep(&gap, NULL);
    }
}

int main(int count, char **values) {
    if (count < 4) {
        fprintf(stderr, "request_loop HOST PORT FRAMES_FILE [--connections C] [--depth D] [--seconds S] "
                        "[--requests R] [--gap-us G]\n");
        return 2;
    }
    unsigned connections = (unsigned)argument(count, values, "--connections", 1);
    unsigned depth = (unsigned)argument(count, values, "--depth", 1);
    unsigned gap_us = (unsigned)argument(count, values, "--gap-us", 0);
    uint64_t limit = (uint64_t)argument(count, values, "--requests", 1e15);
    double seconds = argument(count, values, "--seconds", 10);
    if (!connections || !depth || depth > MAX_DEPTH) return 2;
    read_frames(values[3]);
    start_counting();
    struct connection *all = calloc(connections, sizeof *all);
    if (!all) fail("memory");
    unsigned pause_us = 0;
    for (unsigned i = 0; i < connections; i++) all[i].fd = connect_to(values[1], atoi(values[2]), &pause_us);

    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    if (gap_us)
        paced(&all[0], gap_us, end, limit);
    else
        loop(all, connections, depth, end, limit);
    print_result(start);
    return 0;
}
