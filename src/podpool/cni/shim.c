/* The plugin: carries what the runtime says to the agent, and prints what the agent answers.
 *
 * It knows nothing of CNI but what it must say when there is no agent. The frames are those of messages.py. It needs
 * nothing on the host: static, no allocation, every buffer bounded, every failure a CNI error on stdout and exit code 1.
 * An agent that restarts in the middle is asked again, which is safe: the same sandbox gets the same address. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 1 << 20, CONNECT_MS = 5000, ANSWER_MS = 30000, PAUSE_MS = 20 };
enum { INVALID_ENVIRONMENT = 4, IO_FAILURE = 5, DECODE_FAILURE = 6, TRY_AGAIN_LATER = 11, UNAVAILABLE = 50 };
enum outcome { DONE, AWAY, LATE, BROKEN };

static const char *const VALUES[] = {"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH"};
static char request[4 + LARGEST], answer[LARGEST];
static size_t request_size, answer_size;

static const char *env(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int put(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t wrote = write(fd, bytes, size);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return -1;
        bytes += wrote, size -= (size_t)wrote;
    }
    return 0;
}

static int fail(int code, const char *message) {
    char told[512];
    int size = snprintf(told, sizeof told, "{\"cniVersion\":\"1.1.0\",\"code\":%d,\"msg\":\"%s\"}\n", code, message);
    put(STDOUT_FILENO, told, (size_t)size);
    return 1;
}

static int append(const char *bytes, size_t size) {
    if (size > sizeof request - request_size) return -1;
    memcpy(request + request_size, bytes, size);
    request_size += size;
    return 0;
}

/* Read the environment and all of stdin into one frame. */
static int gather(void) {
    request_size = 4;
    if (append("podpool/1", 10)) return -1;
    for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++) {
        const char *value = env(VALUES[i], "");
        if (append(value, strlen(value) + 1)) return -1;
    }
    for (;;) {
        char more;
        size_t room = sizeof request - request_size;
        ssize_t got = room ? read(STDIN_FILENO, request + request_size, room) : read(STDIN_FILENO, &more, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 || (got > 0 && !room)) return -1;
        if (got == 0) break;
        request_size += (size_t)got;
    }
    uint32_t length = htonl((uint32_t)(request_size - 4));
    memcpy(request, &length, 4);
    return 0;
}

/* Wait until the socket is ready, for as long as the deadline allows. */
static enum outcome ready(int fd, short events, int64_t deadline) {
    for (;;) {
        int64_t left = deadline - now_ms();
        struct pollfd polled = {.fd = fd, .events = events};
        int count = left > 0 ? poll(&polled, 1, (int)left) : 0;
        if (count < 0 && errno == EINTR) continue;
        return count > 0 ? DONE : count == 0 ? LATE : BROKEN;
    }
}

static enum outcome receive(int fd, char *into, size_t size, int64_t deadline) {
    while (size > 0) {
        enum outcome waited = ready(fd, POLLIN, deadline);
        if (waited != DONE) return waited;
        ssize_t got = recv(fd, into, size, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) return AWAY;
        into += got, size -= (size_t)got;
    }
    return DONE;
}

static enum outcome send_request(int fd, int64_t deadline) {
    for (size_t sent = 0; sent < request_size;) {
        enum outcome waited = ready(fd, POLLOUT, deadline);
        if (waited != DONE) return waited;
        ssize_t wrote = send(fd, request + sent, request_size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (wrote < 0) return AWAY;
        sent += (size_t)wrote;
    }
    return DONE;
}

/* Send the request and read the answer. */
static enum outcome exchange(int fd, int64_t deadline) {
    uint32_t length;
    enum outcome went = send_request(fd, deadline);
    if (went == DONE) went = receive(fd, (char *)&length, sizeof length, deadline);
    if (went != DONE) return went;
    answer_size = ntohl(length);
    if (answer_size < 1 || answer_size > sizeof answer) return BROKEN;
    return receive(fd, answer, answer_size, deadline);
}

/* Find the agent, which may be about to start; then ask it, again if it went away in the middle. */
static enum outcome ask(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = env("PODPOOL_SOCKET", "/run/podpool/agent.sock");
    int64_t wait = strtoll(env("PODPOOL_WAIT_MS", "0"), NULL, 10), start = now_ms();
    int64_t away_since = start, deadline = start + ANSWER_MS;
    if (strlen(path) >= sizeof address.sun_path) return BROKEN;
    strcpy(address.sun_path, path);
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) return BROKEN;
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            enum outcome went = exchange(fd, deadline);
            close(fd);
            if (went != AWAY) return went;
            if (away_since == start) away_since = now_ms();
        } else {
            int why = errno;
            close(fd);
            if (why != ENOENT && why != ECONNREFUSED && why != EAGAIN && why != EINTR) return BROKEN;
        }
        int64_t now = now_ms();
        if (now >= deadline || now - away_since >= (wait > 0 ? wait : CONNECT_MS)) return AWAY;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
}

/* Give a DEL to the owner of its directory, who is the agent. A directory that root made, because no agent had been there
 * to do it, goes to the owner of the one above. Where it cannot be given away it stays ours, and is left all the same. */
static int give(int directory, int file) {
    struct stat itself, above;
    if (fstat(directory, &itself)) return -1;
    uid_t owner = itself.st_uid;
    if (owner == 0 && fstatat(directory, "..", &above, 0) == 0 && fchown(directory, above.st_uid, (gid_t)-1) == 0)
        owner = above.st_uid;
    return fchown(file, owner, (gid_t)-1);
}

/* Write the body of the frame into a directory. Its owner must gain nothing by it but the DEL: what is given away is a
 * file that is new, in the very directory that was looked at. */
static int leave_in(int directory, const char *name) {
    char beside[32];
    snprintf(beside, sizeof beside, ".%d.new", (int)getpid());
    unlinkat(directory, beside, 0); /* of one that died */
    int file = openat(directory, beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return -1;
    int wrote = put(file, request + 4, request_size - 4);
    give(directory, file);
    if (close(file) == 0 && wrote == 0 && renameat(directory, beside, directory, name) == 0) return 0;
    unlinkat(directory, beside, 0);
    return -1;
}

/* Write a DEL down for the agent to work through when it is back, under the sandbox's name. */
static int leave(void) {
    char name[256];
    const char *path = env("PODPOOL_DELETES", NULL);
    if (!path) {
        mkdir("/run/podpool", 0700);
        path = "/run/podpool/deletes";
    }
    snprintf(name, sizeof name, "%.200s-%.50s", env("CNI_CONTAINERID", "none"), env("CNI_IFNAME", "none"));
    for (char *each = name; *each; each++)
        if (*each == '/' || (each == name && *each == '.')) *each = '_';
    mkdir(path, 0700);
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (directory < 0) return -1;
    int left = leave_in(directory, name);
    close(directory);
    return left;
}

static int without_agent(const char *command, enum outcome why) {
    if (strcmp(command, "DEL") == 0) {
        if (leave() == 0) return 0;
        return fail(TRY_AGAIN_LATER, "podpool's agent does not answer, and the DEL cannot be written down for it");
    }
    if (why == BROKEN) return fail(IO_FAILURE, "podpool's agent cannot be asked: look at its socket and its log");
    if (why == LATE) return fail(TRY_AGAIN_LATER, "podpool's agent did not answer in time: look at its log");
    int code = strcmp(command, "STATUS") == 0 ? UNAVAILABLE : TRY_AGAIN_LATER;
    return fail(code, "podpool's agent is not running on this node: see whether its Pod is");
}

int main(void) {
    static const char versions[] = "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":"
                                   "[\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n";
    const char *command = env("CNI_COMMAND", "");
    if (!*command) return fail(INVALID_ENVIRONMENT, "CNI_COMMAND is not set: this is a CNI plugin, for a runtime to start");
    if (strcmp(command, "VERSION") == 0) return put(STDOUT_FILENO, versions, sizeof versions - 1) ? 1 : 0;
    if (gather()) return fail(DECODE_FAILURE, "the network configuration cannot be read, or is longer than 1 MiB");
    enum outcome went = ask();
    if (went != DONE) return without_agent(command, went);
    if (put(STDOUT_FILENO, answer + 1, answer_size - 1)) return 1;
    return (unsigned char)answer[0];
}
