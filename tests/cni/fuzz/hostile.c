/* A hostile agent, runtime and machine around the plugin's code, driven by the bytes that libFuzzer generates.
 *
 * Each byte selects the outcome of the plugin's next system call: a short read or write, an interruption, an error, a
 * clock step; after the last byte there is no agent. Beside the sanitizers, each run checks: what was sent is the frame
 * of the runtime's input; what is printed is the agent's complete response or a CNI error; a DEL is saved inside its
 * directory with the right owner, or rejected; a call other than DEL whose reader is gone ends and does nothing more;
 * nothing stays open; and the plugin ends in time. */
#include "hostile.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/un.h>

enum { MAX_BODY = 1 << 20, BEYOND = MAX_BODY + 4096, MS = 1000000, MAX_MS = 32000 };
enum { NAMES = 9, SENT = 6, ARGS = 4, SOCKET = 100, FILE_ = 200, DIRECTORY = 300, PID = 4711, ROOT = 0, AGENT = 1 };

static const char *const NAME[NAMES] = {"CNI_COMMAND",    "CNI_CONTAINERID", "CNI_NETNS",
                                        "CNI_IFNAME",     "CNI_ARGS",        "CNI_PATH",
                                        "PODPOOL_SOCKET", "PODPOOL_DEFERRED_DELETES", "PODPOOL_WAIT_MS"};
static const char *const COMMAND[] = {"ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"};
static const size_t LENGTH[] = {50, 108, 200, 256, 3840, 4096, 4200};

struct bytes {
    uint8_t at[BEYOND];
    size_t size;
};

static const uint8_t *script, *script_end;
static char *value[NAMES];
static struct bytes input, sent, response, printed, written;
static int64_t now;
static int open_sockets, open_files, open_directories, next_socket;
static uid_t parent_owner, directory_owner, file_owner;
static bool parent_made, temporary_exists, owner_unchanged, stdin_broken, stdout_broken, deferred, connected, reader_gone;

#define MUST(rule) ((rule) ? (void)0 : violated(#rule))

static _Noreturn void violated(const char *rule) {
    fprintf(stderr, "must hold: %s\n", rule);
    abort();
}

static uint8_t take(void) { return script < script_end ? *script++ : 0; }

static void append(struct bytes *to, const void *bytes, size_t size) {
    size_t space = sizeof to->at - to->size, fits = size < space ? size : space;
    memcpy(to->at + to->size, bytes, fits);
    to->size += fits;
}

/* memcmp is slow under the sanitizers, and many runs compare a megabyte. */
__attribute__((no_sanitize("address", "undefined", "coverage")))
static bool equal(const uint8_t *one, const uint8_t *other, size_t size) {
    bool differs = false;
    for (size_t i = 0; i < size; i++) differs |= one[i] != other[i];
    return !differs;
}

static bool same(const struct bytes *one, const uint8_t *other, size_t size) {
    return one->size == size && equal(one->at, other, size);
}

static int fail_with(int number) {
    errno = number;
    return -1;
}

/* How many bytes are transferred: all, unless the script selects another outcome. */
static ssize_t transferred(size_t size, int number) {
    switch (take()) {
    case 1: return fail_with(EINTR);
    case 2: return fail_with(number);
    case 3: return size > 0;
    case 4: return (ssize_t)((size + 1) / 2);
    default: return (ssize_t)size;
    }
}

/* The environment */

static char *make_value(size_t longest) {
    uint8_t kind = take();
    if (kind == 0) return NULL;
    bool typed = kind < 0xf0;
    size_t size = typed ? kind - 1u : (kind == 0xff ? longest : LENGTH[kind % 7]) + take() % 64 - 32;
    char *made = malloc(size + 1); /* of the exact size, so that an overrun is detected */
    MUST(made);
    memset(made, 'z', size);
    for (size_t i = 0; typed && i < size; i++) {
        uint8_t next = take();
        if (next) made[i] = (char)next;
    }
    made[size] = 0;
    return made;
}

static void make_environment(void) {
    uint8_t command = take();
    value[0] = command < 6 ? strdup(COMMAND[command]) : make_value(64);
    for (int i = 1; i < NAMES; i++) value[i] = make_value(i == ARGS ? MAX_BODY : 64);
    append(&input, "podpool/1", 10);
    for (int i = 0; i < SENT; i++) append(&input, value[i] ? value[i] : "", value[i] ? strlen(value[i]) + 1 : 1);
}

static const char *variable(int name, const char *otherwise) {
    return value[name] && *value[name] ? value[name] : otherwise;
}

char *hostile_getenv(const char *name) {
    for (int i = 0; i < NAMES; i++)
        if (strcmp(NAME[i], name) == 0) return value[i];
    return NULL;
}

/* Time */

int hostile_clock_gettime(clockid_t clock, struct timespec *result) {
    MUST(clock == CLOCK_BOOTTIME);
    *result = (struct timespec){.tv_sec = now / (1000 * MS), .tv_nsec = now % (1000 * MS)};
    return 0;
}

/* stdin, stdout and files */

ssize_t hostile_read(int fd, void *into, size_t size) {
    MUST(fd == STDIN_FILENO);
    uint8_t kind = take();
    if (kind == 1) return fail_with(EINTR);
    if (kind == 2) {
        stdin_broken = true;
        return fail_with(EIO);
    }
    size_t given = kind == 0 ? 0 : kind == 3 ? size : kind == 4 ? size - 1 : kind < size ? kind : size;
    if (kind == 3 || kind == 4)
        memset(into, 'x', given);
    else
        for (size_t i = 0; i < given; i++) ((uint8_t *)into)[i] = take();
    append(&input, into, given);
    return (ssize_t)given;
}

ssize_t hostile_write(int fd, const void *bytes, size_t size) {
    MUST(fd == STDOUT_FILENO || (fd == FILE_ && open_files == 1));
    ssize_t wrote = transferred(size, fd == STDOUT_FILENO ? EPIPE : ENOSPC);
    if (wrote > 0) append(fd == STDOUT_FILENO ? &printed : &written, bytes, (size_t)wrote);
    if (wrote < 0 && errno == EPIPE) stdout_broken = true;
    return wrote;
}

int hostile_close(int fd) {
    if (fd == FILE_) {
        MUST(open_files-- == 1);
        return take() == 1 ? fail_with(EIO) : 0;
    }
    if (fd == DIRECTORY) {
        MUST(open_files == 0 && open_directories-- == 1);
        return 0;
    }
    MUST(fd == next_socket && open_sockets-- == 1);
    return 0;
}

/* A file of the plugin must be directly in its directory. */
static bool is_temporary(int directory, const char *name) {
    MUST(directory == DIRECTORY && open_directories == 1);
    MUST(*name && !strchr(name, '/') && strlen(name) < 256);
    return *name == '.';
}

int hostile_mkdir(const char *path, mode_t mode) {
    MUST(mode == 0700);
    parent_made |= strcmp(path, "/run/podpool") == 0;
    MUST(parent_made || strcmp(path, variable(7, "")) == 0); /* no other directory is created */
    return take() == 1 ? fail_with(EACCES) : 0;
}

/* The agent may own the directory or only its parent; a killed plugin may have left a temporary file. */
int hostile_open(const char *path, int flags) {
    MUST((flags & (O_DIRECTORY | O_NOFOLLOW)) == (O_DIRECTORY | O_NOFOLLOW) && open_directories == 0);
    MUST(strcmp(path, variable(7, "/run/podpool/deletes")) == 0);
    uint8_t kind = take();
    if (kind == 1) return fail_with(ENOTDIR);
    directory_owner = kind & 2 ? AGENT : ROOT, parent_owner = kind & 4 ? AGENT : ROOT;
    open_directories = 1, temporary_exists = true;
    return DIRECTORY;
}

int hostile_openat(int directory, const char *name, int flags, mode_t mode) {
    MUST(mode == 0600 && (flags & (O_NOFOLLOW | O_CREAT | O_EXCL)) == (O_NOFOLLOW | O_CREAT | O_EXCL));
    MUST(is_temporary(directory, name) && open_files == 0 && !temporary_exists);
    if (take() == 1) return fail_with(EACCES);
    written.size = 0;
    open_files = 1, temporary_exists = true, file_owner = ROOT;
    return FILE_;
}

int hostile_fstat(int fd, struct stat *result) {
    MUST(fd == DIRECTORY && open_directories == 1);
    owner_unchanged = take() == 1;
    result->st_uid = directory_owner;
    return owner_unchanged ? fail_with(EIO) : 0;
}

int hostile_fstatat(int directory, const char *name, struct stat *result, int flags) {
    MUST(directory == DIRECTORY && open_directories == 1 && strcmp(name, "..") == 0 && flags == 0);
    owner_unchanged = take() == 1;
    result->st_uid = parent_owner;
    return owner_unchanged ? fail_with(EACCES) : 0;
}

/* What root owns is given to the owner of the directory it is in, and to no other. */
int hostile_fchown(int fd, uid_t owner, gid_t group) {
    MUST(group == (gid_t)-1 && (fd == FILE_ ? open_files == 1 : fd == DIRECTORY && directory_owner == ROOT));
    MUST(owner == (fd == FILE_ ? directory_owner : parent_owner));
    if (take() == 1) {
        owner_unchanged = true;
        return fail_with(EPERM);
    }
    *(fd == FILE_ ? &file_owner : &directory_owner) = owner;
    return 0;
}

int hostile_renameat(int from_directory, const char *from, int to_directory, const char *to) {
    MUST(is_temporary(from_directory, from) && !is_temporary(to_directory, to) && open_files == 0 && temporary_exists);
    MUST(owner_unchanged || (file_owner == directory_owner && (directory_owner != ROOT || parent_owner == ROOT)));
    if (take() == 1) return fail_with(EIO);
    temporary_exists = false, deferred = true;
    return 0;
}

int hostile_unlinkat(int directory, const char *name, int flags) {
    MUST(is_temporary(directory, name) && flags == 0);
    temporary_exists = false;
    return 0;
}

pid_t hostile_getpid(void) { return PID; }

/* The agent */

int hostile_socket(int family, int type, int protocol) {
    MUST(family == AF_UNIX && (type & SOCK_STREAM) && (type & SOCK_CLOEXEC) && (type & SOCK_NONBLOCK) && protocol == 0);
    MUST(open_sockets == 0);
    if (take() == 1) return fail_with(EMFILE);
    open_sockets = 1;
    next_socket = next_socket < FILE_ - 1 ? next_socket + 1 : SOCKET;
    sent.size = response.size = 0;
    return next_socket;
}

int hostile_connect(int fd, const struct sockaddr *address, socklen_t size) {
    static const int WHY[] = {ENOENT, ECONNREFUSED, EAGAIN, EINTR, EACCES, EPROTOTYPE};
    const struct sockaddr_un *unix_address = (const struct sockaddr_un *)address;
    MUST(fd == next_socket && size == sizeof *unix_address && unix_address->sun_family == AF_UNIX);
    MUST(strcmp(unix_address->sun_path, variable(6, "/run/podpool/agent.sock")) == 0);
    connected = true;
    uint8_t kind = take();
    return kind < sizeof WHY / sizeof *WHY ? fail_with(WHY[kind]) : 0;
}

/* The reader of the result is gone: a DEL does not ask. */
static int reader_is_gone(struct pollfd *reader) {
    MUST(reader->events == 0 && reader->fd == (strcmp(variable(0, ""), "DEL") ? STDOUT_FILENO : -1));
    reader_gone = reader->fd >= 0;
    reader->revents = reader_gone ? POLLERR : 0;
    return reader_gone;
}

/* The plugin waits before it connects again. */
static int sleep_or_end(struct pollfd *reader, int milliseconds) {
    MUST(open_sockets == 0);
    bool scripted = script < script_end;
    uint8_t kind = take();
    if (kind == 1) return fail_with(EINTR);
    if (kind == 2) return fail_with(ENOMEM);
    if (kind == 6 && reader_is_gone(reader)) return 1;
    now += (milliseconds + (scripted ? kind * 4 : 500)) * (int64_t)MS;
    return 0;
}

int hostile_poll(struct pollfd *polled, nfds_t count, int milliseconds) {
    MUST(count == 2 && milliseconds > 0 && milliseconds <= MAX_MS && !reader_gone);
    polled[0].revents = polled[1].revents = 0;
    if (polled[0].fd < 0) return sleep_or_end(&polled[1], milliseconds);
    MUST(polled[0].fd == next_socket && open_sockets == 1);
    switch (take()) {
    case 0: now += (int64_t)milliseconds * MS; return 0;
    case 1: now += take() * (int64_t)milliseconds * MS / 256; return fail_with(EINTR);
    case 2: return fail_with(ENOMEM);
    case 3: now += take() * (int64_t)milliseconds * MS / 256; break;
    case 6:
        if (reader_is_gone(&polled[1])) return 1;
        break;
    default: break;
    }
    polled[0].revents = polled[0].events;
    return 1;
}

ssize_t hostile_recv(int fd, void *into, size_t size, int flags) {
    MUST(fd == next_socket && open_sockets == 1 && flags == MSG_DONTWAIT && size > 0);
    uint8_t kind = take();
    if (kind == 0) return 0;
    if (kind <= 3) return fail_with(kind == 1 ? EINTR : kind == 2 ? EAGAIN : ECONNRESET);
    if (kind == 4 && size == 4) { /* a length near the limit */
        uint32_t length = htonl(MAX_BODY + take() % 8 - 4u);
        memcpy(into, &length, 4);
        append(&response, into, 4);
        return 4;
    }
    size_t given = kind == 4 ? size : kind == 5 ? size - (size > 1) : kind - 5u < size ? kind - 5u : size;
    if (kind <= 5)
        memset(into, 'y', given);
    else
        for (size_t i = 0; i < given; i++) ((uint8_t *)into)[i] = take();
    append(&response, into, given);
    return (ssize_t)given;
}

ssize_t hostile_send(int fd, const void *bytes, size_t size, int flags) {
    MUST(fd == next_socket && open_sockets == 1 && flags == (MSG_DONTWAIT | MSG_NOSIGNAL) && size > 0);
    ssize_t wrote = take() == 5 ? fail_with(EAGAIN) : transferred(size, EPIPE);
    if (wrote > 0) append(&sent, bytes, (size_t)wrote);
    return wrote;
}

/* Checks */

/* Whether the agent's last response is complete; the plugin must not read beyond it. */
static bool complete_response(void) {
    if (response.size < 4) return false;
    uint32_t size;
    memcpy(&size, response.at, 4);
    size = ntohl(size);
    if (size < 1 || size > MAX_BODY) {
        MUST(response.size == 4); /* nothing is read after an invalid length */
        return false;
    }
    MUST(response.size <= 4 + size);
    return response.size == 4 + size;
}

static void check_sent(void) {
    uint32_t head = htonl((uint32_t)input.size);
    MUST(sent.size <= 4 + input.size);
    MUST(memcmp(sent.at, &head, sent.size < 4 ? sent.size : 4) == 0);
    if (sent.size > 4) MUST(equal(sent.at + 4, input.at, sent.size - 4));
    if (response.size > 0) MUST(sent.size == 4 + input.size);
}

static void check_error(int code) {
    static const char START[] = "{\"cniVersion\":\"1.1.0\",\"code\":";
    MUST(code == 1 && printed.size > sizeof START && printed.size < 512);
    MUST(memcmp(printed.at, START, sizeof START - 1) == 0 && memcmp(printed.at + printed.size - 3, "\"}\n", 3) == 0);
}

static void check(int code) {
    const char *command = variable(0, "");
    bool rejected = stdin_broken || input.size > MAX_BODY;
    MUST(now <= (int64_t)MAX_MS * MS);
    MUST(open_sockets == 0 && open_files == 0 && open_directories == 0 && !temporary_exists);
    if (!*command || strcmp(command, "VERSION") == 0) MUST(!connected);
    if (rejected) MUST(!connected && !deferred);
    check_sent();
    if (reader_gone) {
        MUST(code == 1 && printed.size == 0 && !deferred);
        return;
    }
    if (deferred) {
        MUST(code == 0 && printed.size == 0 && strcmp(command, "DEL") == 0 && same(&written, input.at, input.size));
        return;
    }
    if (stdout_broken) return;
    if (!rejected && connected && complete_response()) {
        MUST(code == response.at[4] && same(&printed, response.at + 5, response.size - 5));
    } else if (strcmp(command, "VERSION") == 0) {
        MUST(code == 0 && printed.size > 0);
    } else {
        check_error(code);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    script = bytes, script_end = bytes + size;
    input.size = sent.size = response.size = printed.size = written.size = 0;
    now = open_sockets = open_files = open_directories = 0, next_socket = SOCKET;
    parent_made = temporary_exists = owner_unchanged = stdin_broken = stdout_broken = deferred = connected = false;
    reader_gone = false;
    make_environment();
    check(plugin_main());
    for (int i = 0; i < NAMES; i++) free(value[i]);
    return 0;
}
