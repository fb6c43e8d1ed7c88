/* Lets chosen writes of a process fail, as they do on a full, read-only or broken disk.

   Preloaded into a process and its children. Every call that changes files below one directory can be listed; of those
   whose line of the list is like a pattern, such as "rename /mixseek.db" or "pwrite *", the one with the chosen number
   fails with the chosen error, or it and all calls that follow. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN, WRITE, SYNC, RESIZE, NAME, REMOVE, REOPEN };

static char root[PATH_MAX];
static size_t root_length;
static long chosen;
static int error_number;
static int lasts;
static int log_to = -1;
static char wanted[256];
static atomic_long counted;
static atomic_int has_begun;

/* From now on below `directory`; `number` 0 lets nothing fail. What is called is listed in `log`. */
void disk_faults_arm(const char *directory, const char *pattern, long number, int error, int from_there_on, int log) {
    strncpy(root, directory, sizeof root - 1);
    root_length = strlen(root);
    strncpy(wanted, pattern, sizeof wanted - 1);
    chosen = number;
    error_number = error;
    lasts = from_there_on;
    log_to = log;
}

static ssize_t (*real_write)(int, const void *, size_t);

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int is_below(const char *path) {
    return root_length && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static const char *path_of(int fd, char *into) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, into, PATH_MAX - 1);
    if (length < 0) return "";
    into[length] = 0;
    return into;
}

/* A name as it was given, made absolute. */
static const char *path_at(int directory, const char *path, char *into) {
    if (path[0] == '/') return path;
    char base[PATH_MAX];
    if (directory == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return "";
    } else {
        path_of(directory, base);
    }
    if ((size_t)snprintf(into, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return "";
    return into;
}

/* Whether a disk in this state refuses this kind of call: a full one opens what is there and lets files be removed. */
static int refuses(enum kind kind) {
    switch (error_number) {
        case ENOSPC: return kind != REMOVE && kind != REOPEN;
        case EIO: return kind == SYNC || kind == WRITE;
        default: return 1;
    }
}

static int is_chosen(const char *line) {
    if (!chosen || fnmatch(wanted, line, 0)) return 0;
    if (atomic_fetch_add(&counted, 1) + 1 != chosen) return 0;
    atomic_store(&has_begun, 1);
    return 1;
}

static int fails(enum kind kind, const char *what, const char *path) {
    if (!root_length || !is_below(path)) return 0;
    int saved = errno;
    char line[PATH_MAX + 64];
    int start = snprintf(line, sizeof line, "%d ", kind);
    int end = start + snprintf(line + start, sizeof line - (size_t)start, "%s %s", what, path + root_length);
    int is_meant = is_chosen(line + start) || (lasts && atomic_load(&has_begun));
    int is_hit = is_meant && refuses(kind);
    if (!real_write) real_write = (__typeof__(real_write))dlsym(RTLD_NEXT, "write");
    end += snprintf(line + end, sizeof line - (size_t)end, " %d\n", is_hit);
    if (log_to >= 0 && real_write(log_to, line, (size_t)end) < 0) log_to = -1;
    errno = is_hit ? error_number : saved;
    return is_hit;
}

static int fails_fd(enum kind kind, const char *what, int fd) {
    if (!root_length) return 0;
    int saved = errno;
    char path[PATH_MAX];
    path_of(fd, path);
    errno = saved;
    return fails(kind, what, path);
}

static int fails_at(enum kind kind, const char *what, int directory, const char *path) {
    if (!root_length) return 0;
    char whole[PATH_MAX];
    return fails(kind, what, path_at(directory, path, whole));
}

static int open_fails(int directory, const char *path, int flags) {
    if (!root_length || (flags & O_ACCMODE) == O_RDONLY) return 0;
    int saved = errno, is_there = !faccessat(directory, path, F_OK, 0);
    errno = saved;
    int reopens = is_there && !(flags & O_TRUNC);
    return fails_at(reopens ? REOPEN : OPEN, reopens ? "reopen" : "open", directory, path);
}

/* Who asks beforehand hears the truth; the question is no write and is not counted. */
static int access_fails(int directory, const char *path, int mode) {
    char whole[PATH_MAX];
    if (!root_length || !(mode & W_OK) || error_number != EROFS || !lasts || !atomic_load(&has_begun)) return 0;
    if (!is_below(path_at(directory, path, whole))) return 0;
    errno = EROFS;
    return 1;
}

int access(const char *path, int mode) {
    REAL(access);
    return access_fails(AT_FDCWD, path, mode) ? -1 : real(path, mode);
}

int faccessat(int directory, const char *path, int mode, int flags) {
    REAL(faccessat);
    return access_fails(directory, path, mode) ? -1 : real(directory, path, mode, flags);
}

static mode_t mode_in(int flags, va_list rest) {
    return (flags & (O_CREAT | O_TMPFILE)) ? (mode_t)va_arg(rest, int) : 0;
}

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; va_start(rest, flags); mode_t mode = mode_in(flags, rest); va_end(rest); \
        return open_fails(AT_FDCWD, path, flags) ? -1 : real(path, flags, mode); \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; va_start(rest, flags); mode_t mode = mode_in(flags, rest); va_end(rest); \
        return open_fails(directory, path, flags) ? -1 : real(directory, path, flags, mode); \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
    if (!real_write) real_write = (__typeof__(real_write))dlsym(RTLD_NEXT, "write");
    return fails_fd(WRITE, "write", fd) ? -1 : real_write(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    return fails_fd(WRITE, "pwrite", fd) ? -1 : real(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(pwrite64);
    return fails_fd(WRITE, "pwrite", fd) ? -1 : real(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    return fails_fd(WRITE, "writev", fd) ? -1 : real(fd, parts, count);
}
int fsync(int fd) {
    REAL(fsync);
    return fails_fd(SYNC, "fsync", fd) ? -1 : real(fd);
}
int fdatasync(int fd) {
    REAL(fdatasync);
    return fails_fd(SYNC, "fdatasync", fd) ? -1 : real(fd);
}
int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    return fails_fd(RESIZE, "ftruncate", fd) ? -1 : real(fd, size);
}
int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    return fails_fd(RESIZE, "ftruncate", fd) ? -1 : real(fd, size);
}
int posix_fallocate(int fd, off_t at, off_t size) {
    REAL(posix_fallocate);
    return fails_fd(RESIZE, "fallocate", fd) ? error_number : real(fd, at, size);
}
int posix_fallocate64(int fd, off64_t at, off64_t size) {
    REAL(posix_fallocate64);
    return fails_fd(RESIZE, "fallocate", fd) ? error_number : real(fd, at, size);
}
int fallocate(int fd, int mode, off_t at, off_t size) {
    REAL(fallocate);
    return fails_fd(RESIZE, "fallocate", fd) ? -1 : real(fd, mode, at, size);
}
int fallocate64(int fd, int mode, off64_t at, off64_t size) {
    REAL(fallocate64);
    return fails_fd(RESIZE, "fallocate", fd) ? -1 : real(fd, mode, at, size);
}
int rename(const char *from, const char *to) {
    REAL(rename);
    return fails_at(NAME, "rename", AT_FDCWD, to) ? -1 : real(from, to);
}
int link(const char *from, const char *to) {
    REAL(link);
    return fails_at(NAME, "link", AT_FDCWD, to) ? -1 : real(from, to);
}
int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    REAL(linkat);
    return fails_at(NAME, "link", to_directory, to) ? -1 : real(from_directory, from, to_directory, to, flags);
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    struct stat found;
    int saved = errno, is_there = !stat(path, &found);
    errno = saved;
    return !is_there && fails_at(NAME, "mkdir", AT_FDCWD, path) ? -1 : real(path, mode);
}
int unlink(const char *path) {
    REAL(unlink);
    int saved = errno, is_there = !faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW);
    errno = saved;
    return is_there && fails_at(REMOVE, "unlink", AT_FDCWD, path) ? -1 : real(path);
}
