/* Records what a power failure is certain to leave, in the file named by TERN_SYNCED. Preloaded under a server:
 *
 *   F <bytes> <inode> <path>     a file was synced, with this length before the sync
 *   D <path>                     a directory was synced, with the following entries before the sync
 *   E <inode> <name>             (the directory named by TERN_LINKS keeps a link to each file, for files removed later)
 *
 * Bytes written during a sync do not count. With TERN_FORGETS_ENTRIES directories are never synced.
 *
 * The file named by TERN_GATE holds "<part of a path> <mode>" and makes the next sync of such a file fail. Its unsynced bytes never
 * reach the disk, even if later syncs succeed: with mode "gone" they are zeros from now on, with "kept" they can still be read. It fails
 * slowly: whoever looks at the file meanwhile must not believe it.
 *
 * While the file named by TERN_FULL exists, the disk has no room for files whose path contains its text, and reports that slowly. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 4096

static struct { ino_t inode; off_t length; int lost; } known[FILES];
static int files;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The index of a file in `known`. */
static int place(ino_t inode) {
    for (int at = 0; at < files; at++)
        if (known[at].inode == inode) return at;
    if (files == FILES) abort();
    known[files].inode = inode;
    return files++;
}

/* Another link to a file, so that no later file reuses its inode. */
static void keep(const char *path, ino_t inode) {
    char to[4200];
    const char *links = getenv("TERN_LINKS");
    if (!links) return;
    snprintf(to, sizeof to, "%.2000s/%llu", links, (unsigned long long)inode);
    if (link(path, to) != 0 && errno != EEXIST && errno != ENOENT) abort();
}

static void note(const char *text, size_t size) {
    int out = open(getenv("TERN_SYNCED"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0 || write(out, text, size) != (ssize_t)size) abort();
    close(out);
}

/* The record of a directory's sync. */
static char *entries(const char *path, size_t *size) {
    char *text = NULL, file[4096];
    FILE *out = open_memstream(&text, size);
    DIR *dir = opendir(path);
    struct dirent *entry;
    fprintf(out, "D %s\n", path);
    while (dir && (entry = readdir(dir))) {
        if (entry->d_type != DT_REG) continue;
        fprintf(out, "E %llu %s\n", (unsigned long long)entry->d_ino, entry->d_name);
        snprintf(file, sizeof file, "%.2000s/%s", path, entry->d_name);
        keep(file, entry->d_ino);
    }
    if (dir) closedir(dir);
    fclose(out);
    return text;
}

/* The gate while its sync is failing. */
static const char *failing(void) {
    static char name[4200];
    snprintf(name, sizeof name, "%.4000s.failing", getenv("TERN_GATE"));
    return name;
}

/* Whether this sync must fail, and how: 0, 'g' or 'k'. */
static int gate(const char *path) {
    const char *name = getenv("TERN_GATE");
    char part[256], mode[16];
    FILE *in = name ? fopen(name, "re") : NULL;
    if (!in) return 0;
    int read = fscanf(in, "%255s %15s", part, mode);
    fclose(in);
    if (read != 2 || !strstr(path, part) || rename(name, failing()) != 0) return 0;
    return mode[0];
}

/* Loses the file's unsynced bytes, and all that is written behind them. Tern rewrites its own files before it syncs them again. */
static void lose(int fd, int at, const char *path, off_t length, int mode) {
    static const char zeros[4096];
    known[at].lost = known[at].length < length && !strstr(path, "TERN-");
    for (off_t from = known[at].length; mode == 'g' && from < length; from += sizeof zeros) {
        size_t size = length - from < (off_t)sizeof zeros ? (size_t)(length - from) : sizeof zeros;
        if (pwrite(fd, zeros, size, from) != (ssize_t)size) abort();
    }
}

static int synced(const char *name, int fd) {
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    struct stat before;
    char link[64], path[4096], line[4200];
    if (!getenv("TERN_SYNCED") || fstat(fd, &before) != 0) return sync(fd);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return sync(fd);
    path[length] = 0;
    if (S_ISDIR(before.st_mode)) {
        size_t size = 0;
        char *text = getenv("TERN_FORGETS_ENTRIES") ? NULL : entries(path, &size);
        int result = sync(fd);
        if (result == 0 && text) note(text, size);
        free(text);
        return result;
    }
    if (!S_ISREG(before.st_mode)) return sync(fd);
    pthread_mutex_lock(&lock);
    int at = place(before.st_ino), mode = gate(path);
    keep(path, before.st_ino);
    if (mode) lose(fd, at, path, before.st_size, mode);
    pthread_mutex_unlock(&lock);
    if (mode) {
        usleep(300000);
        unlink(failing());
        errno = EIO;
        return -1;
    }
    int result = sync(fd);
    pthread_mutex_lock(&lock);
    if (result == 0 && !known[at].lost) {
        if (known[at].length < before.st_size) known[at].length = before.st_size;
        int size = snprintf(line, sizeof line, "F %lld %llu %s\n", (long long)before.st_size,
                            (unsigned long long)before.st_ino, path);
        note(line, (size_t)size);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whether the disk has no room for the file. */
static int is_full(int fd) {
    const char *name = getenv("TERN_FULL");
    char part[256], link[64], path[4096];
    FILE *in = name ? fopen(name, "re") : NULL;
    if (!in) return 0;
    int read = fscanf(in, "%255s", part);
    fclose(in);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (read != 1 || length < 0) return 0;
    path[length] = 0;
    return strstr(path, part) != NULL;
}

ssize_t write(int fd, const void *bytes, size_t size) {
    static ssize_t (*next)(int, const void *, size_t);
    if (!next) next = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (!is_full(fd)) return next(fd, bytes, size);
    usleep(300000);
    errno = ENOSPC;
    return -1;
}

int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }
