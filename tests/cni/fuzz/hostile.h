/* Included before shim.c: redirects every system call of the plugin to hostile.c.
 *
 * The headers come first, so that their declarations are not redirected, and shim.c is compiled unmodified. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

char *hostile_getenv(const char *name);
int hostile_clock_gettime(clockid_t clock, struct timespec *now);
ssize_t hostile_read(int fd, void *into, size_t size);
ssize_t hostile_write(int fd, const void *bytes, size_t size);
int hostile_socket(int family, int type, int protocol);
int hostile_connect(int fd, const struct sockaddr *address, socklen_t size);
int hostile_poll(struct pollfd *polled, nfds_t count, int milliseconds);
ssize_t hostile_recv(int fd, void *into, size_t size, int flags);
ssize_t hostile_send(int fd, const void *bytes, size_t size, int flags);
int hostile_close(int fd);
int hostile_mkdir(const char *path, mode_t mode);
int hostile_open(const char *path, int flags);
int hostile_openat(int directory, const char *name, int flags, mode_t mode);
int hostile_renameat(int from_directory, const char *from, int to_directory, const char *to);
int hostile_unlinkat(int directory, const char *name, int flags);
int hostile_fstat(int fd, struct stat *result);
int hostile_fstatat(int directory, const char *name, struct stat *result, int flags);
int hostile_fchown(int fd, uid_t owner, gid_t group);
pid_t hostile_getpid(void);
int plugin_main(void);

#ifdef PLUGIN
#define getenv hostile_getenv
#define clock_gettime hostile_clock_gettime
#define read hostile_read
#define write hostile_write
#define socket hostile_socket
#define connect hostile_connect
#define poll(polled, count, milliseconds) hostile_poll(polled, count, milliseconds)
#define recv hostile_recv
#define send hostile_send
#define close hostile_close
#define mkdir hostile_mkdir
#define open hostile_open
#define openat hostile_openat
#define renameat hostile_renameat
#define unlinkat hostile_unlinkat
#define fstat hostile_fstat
#define fstatat hostile_fstatat
#define fchown hostile_fchown
#define getpid hostile_getpid
#define main plugin_main
#endif
