//go:build amd64 || arm64

package syscallfault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification corresponds to the kernel's struct seccomp_notif.
type notification struct {
	id    uint64
	tid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// response corresponds to the kernel's struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

const pollEvery = 50 // milliseconds

// Run runs a command until it and its processes have ended. It calls decide before each system call
// that changes a file, always from one goroutine. When ctx ends, it kills all processes and returns
// the error of ctx.
func Run(ctx context.Context, c Command, decide func(Call) Decision) (Report, error) {
	cmd, listener, err := start(c)
	if err != nil {
		return Report{}, err
	}
	defer unix.Close(listener)
	w := &watch{listener: listener, decide: decide, root: cmd.Process.Pid,
		seen: map[int]bool{cmd.Process.Pid: true}, threads: map[int]int{}}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	err = w.loop(ctx, ended, c.Grace)
	if err != nil {
		w.killAll()
	}
	<-ended
	state := cmd.ProcessState.Sys().(syscall.WaitStatus)
	w.report.Code = cmd.ProcessState.ExitCode()
	w.report.Killed = state.Signaled() && state.Signal() == syscall.SIGKILL
	w.report.State = cmd.ProcessState.String()
	return w.report, err
}

// start starts the command with the filter installed.
func start(c Command) (*exec.Cmd, int, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "seccomp"), os.NewFile(uintptr(pair[1]), "seccomp")
	defer ours.Close()
	defer theirs.Close()
	output, err := os.OpenFile(c.Output, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, 0, err
	}
	defer output.Close()
	cmd := exec.Command(self, c.Args...)
	cmd.Dir, cmd.Env = c.Dir, append(slices.Clone(c.Env), launchVariable+"=1")
	if c.Env == nil {
		cmd.Env = append(os.Environ(), launchVariable+"=1")
	}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = output, output, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	theirs.Close()
	listener, err := receive(pair[0])
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, 0, fmt.Errorf("%w (%s)", ErrUnsupported, cmd.ProcessState)
	}
	return cmd, listener, nil
}

// receive receives the filter's listener from the command.
func receive(socket int) (int, error) {
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return 0, err
	}
	if len(messages) == 0 {
		return 0, errors.New("the command ended before the filter was installed")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	return fds[0], nil
}

// watch is the state of a running command.
type watch struct {
	listener int
	decide   func(Call) Decision
	root     int
	seen     map[int]bool // processes that have made a call
	threads  map[int]int  // their threads
	killing  bool         // all processes are being killed
	report   Report
}

// loop answers calls until all processes have ended. Every process becomes known, because it opens
// files when it starts.
func (w *watch) loop(ctx context.Context, ended <-chan struct{}, grace time.Duration) error {
	var deadline <-chan time.Time
	for {
		fds := []unix.PollFd{{Fd: int32(w.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, pollEvery); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		switch {
		case fds[0].Revents&unix.POLLIN != 0:
			if err := w.next(); err != nil {
				return err
			}
		case fds[0].Revents&unix.POLLHUP != 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			ended, deadline = nil, time.After(grace)
		case <-deadline:
			w.report.Orphans, deadline = w.alive(), nil
			w.killAll()
		default:
		}
	}
}

// next receives one call and answers it.
func (w *watch) next() error {
	var n notification
	if err := w.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) { // the process has ended
			return nil
		}
		return err
	}
	tid := int(n.tid)
	pid, known := w.threads[tid]
	if !known {
		var err error
		if pid, err = process(tid); err != nil {
			return nil // it has ended
		}
		w.threads[tid], w.seen[pid] = pid, true
	}
	if w.killing {
		return kill(pid)
	}
	call, interesting, err := read(tid, int(n.nr), n.args)
	if err != nil || !interesting {
		// The argument is invalid, or the process has ended.
		return w.answer(n.id)
	}
	call.PID, call.Root = pid, pid == w.root
	d := w.decide(call)
	w.report.Calls++
	if d.Verdict == Continue {
		return w.answer(n.id)
	}
	if d.Torn && call.Bytes > 1 {
		if err := tear(pid, tid, int(n.nr), n.args); err != nil {
			return fmt.Errorf("writing half of %d bytes to %s: %w", call.Bytes, call.Path, err)
		}
	}
	if d.Verdict == KillCaller {
		return kill(pid)
	}
	w.killAll()
	return nil
}

// answer lets a call continue.
func (w *watch) answer(id uint64) error {
	r := response{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	err := w.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
	if errors.Is(err, unix.ENOENT) { // killed by somebody else
		return nil
	}
	return err
}

func (w *watch) ioctl(request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(w.listener), request,
		uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// killAll kills all known processes. Others are killed at their first call.
func (w *watch) killAll() {
	w.killing = true
	for pid := range w.seen {
		_ = kill(pid)
	}
}

func kill(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// alive lists the known processes that are still running.
func (w *watch) alive() []int {
	var list []int
	for pid := range w.seen {
		if own, err := process(pid); err == nil && own == pid {
			list = append(list, pid)
		}
	}
	slices.Sort(list)
	return list
}

// Supported returns nil if [Run] works on this system, and otherwise [ErrUnsupported] with a
// reason.
func Supported(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	calls := 0
	_, err = Run(ctx, Command{Args: []string{"/bin/sh", "-c", ": > " + os.DevNull, self},
		Output: os.DevNull, Grace: time.Second},
		func(Call) Decision { calls++; return Decision{} })
	if err == nil && calls == 0 {
		err = ErrUnsupported
	}
	return err
}

// launchVariable is the environment variable that makes this process become the command. It then
// has a socket at descriptor 3.
const launchVariable = "CAGE_TRAP_LAUNCH"

const launchSocket = 3

// Launch must be the first call in the main function, or in TestMain, of a program that uses [Run]:
// Run starts that program again, and in the new process Launch installs the filter and then
// executes the command. Otherwise, Launch returns.
func Launch() {
	if os.Getenv(launchVariable) == "" {
		return
	}
	err := launch()
	fmt.Fprintln(os.Stderr, "syscallfault:", err)
	os.Exit(127)
}

// launch installs the filter on this thread, sends the listener to the parent, and executes the
// command. Once the filter is installed, the system calls in calls wait for an answer.
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

// install installs the filter on the calling thread. Its children inherit the filter.
func install() (listener int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	filter := program()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return 0, fmt.Errorf("%w: %w", ErrUnsupported, errno)
	}
	return int(fd), nil
}

// program returns a filter that notifies the listener of the calls in the table and allows all
// others.
func program() []unix.SockFilter {
	const number = 0 // offset of the system call's number in struct seccomp_data
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number}}
	left := len(calls)
	for _, nr := range slices.Sorted(maps.Keys(calls)) {
		// If it is this call, jump to the last instruction, skipping the remaining comparisons and
		// the instruction that allows the call.
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(left), K: uint32(nr)})
		left--
	}
	return append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
}
