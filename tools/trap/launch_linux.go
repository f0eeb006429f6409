//go:build amd64 || arm64

package trap

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// launchVariable tells this process to become the command. Its socket is descriptor 3.
const launchVariable = "CAGE_TRAP_LAUNCH"

const launchSocket = 3

// Launch must be the first call in the main function, or in TestMain, of a program that
// uses [Run]: Run starts that program again, and in the new process Launch installs the
// filter and then becomes the command. In all other cases it returns.
func Launch() {
	if os.Getenv(launchVariable) == "" {
		return
	}
	err := launch()
	fmt.Fprintln(os.Stderr, "trap:", err)
	os.Exit(127)
}

// launch installs the filter on this thread, hands its listener over, and becomes the
// command. From the filter on, calls in calls[] wait for an answer.
func launch() error {
	runtime.LockOSThread()
	if err := os.Unsetenv(launchVariable); err != nil {
		return err
	}
	path, args, env := os.Args[1], os.Args[1:], os.Environ()
	listener, err := install()
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(launchSocket, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return err
	}
	unix.CloseOnExec(listener)
	unix.CloseOnExec(launchSocket)
	return unix.Exec(path, args, env)
}

// install puts the filter on the calling thread, whose children inherit it.
func install() (listener int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	filter := program()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return 0, fmt.Errorf("%w: %w", ErrUnsupported, errno)
	}
	return int(fd), nil
}

// program asks the listener about the calls of the table and allows all others.
func program() []unix.SockFilter {
	const number = 0 // offset of the system call's number in struct seccomp_data
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number}}
	left := len(calls)
	for _, nr := range numbers() {
		// If it is this call, jump to the last instruction, over the other comparisons and the
		// instruction that allows.
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(left), K: uint32(nr)})
		left--
	}
	return append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
}
