//go:build amd64 || arm64

package syscallfault

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// shape holds the positions of a system call's arguments that describe files; -1 means none.
type shape struct {
	name  string
	fd    int // descriptor of the file
	dir   int // descriptor of the directory that path is relative to
	path  int
	toDir int
	to    int
	size  int // number of bytes written
	flags int // of open: calls that only read are not stopped at
}

func byFD(name string) shape { return shape{name, 0, -1, -1, -1, -1, -1, -1} }

// calls lists the system calls with which Go programs change files, on the two architectures for
// which releases are built.
var calls = map[int]shape{
	unix.SYS_OPENAT:          {"openat", -1, 0, 1, -1, -1, -1, 2},
	unix.SYS_MKDIRAT:         {"mkdirat", -1, 0, 1, -1, -1, -1, -1},
	unix.SYS_UNLINKAT:        {"unlinkat", -1, 0, 1, -1, -1, -1, -1},
	unix.SYS_RENAMEAT:        {"renameat", -1, 0, 1, 2, 3, -1, -1},
	unix.SYS_RENAMEAT2:       {"renameat2", -1, 0, 1, 2, 3, -1, -1},
	unix.SYS_LINKAT:          {"linkat", -1, 0, 1, 2, 3, -1, -1},
	unix.SYS_FCHMODAT:        {"fchmodat", -1, 0, 1, -1, -1, -1, -1},
	unix.SYS_TRUNCATE:        {"truncate", -1, -1, 0, -1, -1, -1, -1},
	unix.SYS_WRITE:           {"write", 0, -1, -1, -1, -1, 2, -1},
	unix.SYS_PWRITE64:        {"pwrite64", 0, -1, -1, -1, -1, 2, -1},
	unix.SYS_WRITEV:          byFD("writev"),
	unix.SYS_FTRUNCATE:       byFD("ftruncate"),
	unix.SYS_FALLOCATE:       byFD("fallocate"),
	unix.SYS_FSYNC:           byFD("fsync"),
	unix.SYS_FDATASYNC:       byFD("fdatasync"),
	unix.SYS_FLOCK:           byFD("flock"),
	unix.SYS_FCHMOD:          byFD("fchmod"),
	unix.SYS_SENDFILE:        byFD("sendfile"),
	unix.SYS_SYMLINKAT:       {"symlinkat", -1, 1, 2, -1, -1, -1, -1},
	unix.SYS_SYNC_FILE_RANGE: byFD("sync_file_range"),
}

// read describes the system call that a thread is about to make. interesting is false if the call
// does not change a file, such as opening for reading or writing to a pipe.
func read(tid int, nr int, args [6]uint64) (call Call, interesting bool, err error) {
	s := calls[nr]
	call.Name = s.name
	if s.flags >= 0 && args[s.flags]&(unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY|unix.O_RDWR) == 0 {
		return call, false, nil
	}
	if s.size >= 0 {
		call.Bytes = int(args[s.size])
	}
	if s.fd >= 0 {
		call.Path, err = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(args[s.fd])))
	} else {
		call.Path, err = pathAt(tid, s.dir, s.path, args)
	}
	if err == nil && s.to >= 0 {
		call.To, err = pathAt(tid, s.toDir, s.to, args)
	}
	return call, strings.HasPrefix(call.Path, "/"), err
}

// pathAt reads a path argument and returns it as an absolute path.
func pathAt(tid, dir, path int, args [6]uint64) (string, error) {
	text, err := memory(tid, args[path], unix.PathMax)
	if err != nil {
		return "", err
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	name := string(text)
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	base := fmt.Sprintf("/proc/%d/cwd", tid)
	if dir >= 0 && int32(args[dir]) != unix.AT_FDCWD {
		base = fmt.Sprintf("/proc/%d/fd/%d", tid, int32(args[dir]))
	}
	if base, err = os.Readlink(base); err != nil {
		return "", err
	}
	return filepath.Join(base, name), nil
}

// memory reads n bytes of a thread's memory, or fewer if the memory ends before.
func memory(tid int, address uint64, n int) ([]byte, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", tid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buffer := make([]byte, n)
	read, err := f.ReadAt(buffer, int64(address))
	if read == 0 && err != nil {
		return nil, err
	}
	return buffer[:read], nil
}

// process returns the ID of a thread's process.
func process(tid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "\nTgid:")
	field, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(strings.TrimSpace(field))
}

// tear performs the first half of a thread's pending write.
func tear(pid, tid, nr int, args [6]uint64) error {
	data, err := memory(tid, args[1], int(args[2]))
	if err != nil {
		return err
	}
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(handle)
	fd, err := unix.PidfdGetfd(handle, int(args[0]), 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	half := data[:len(data)/2]
	if nr == unix.SYS_PWRITE64 {
		_, err = unix.Pwrite(fd, half, int64(args[3]))
	} else {
		_, err = unix.Write(fd, half)
	}
	return err
}
