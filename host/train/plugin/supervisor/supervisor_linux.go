package supervisor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startTime is how long the supervisor may take to start the program.
const startTime = 30 * time.Second

// Process is a program running below a supervisor.
type Process struct {
	// PID is the process ID of the program.
	PID    int
	cmd    *exec.Cmd
	report *bufio.Reader
	pipe   *os.File
}

// Start starts the program at path with an environment and standard files, which still
// belong to the caller, and a limit of memory in bytes. It must be called on a thread
// that lives as long as the program should.
func Start(path string, env []string, stdin, stdout, stderr *os.File, limit uint64) (*Process, error) {
	pipe, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{name, strconv.FormatUint(limit, 10), path},
		Env: env, Stdin: stdin, Stdout: stdout, Stderr: stderr, ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM},
	}
	err = errors.Join(cmd.Start(), theirs.Close())
	if err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	p := &Process{cmd: cmd, report: bufio.NewReader(pipe), pipe: pipe}
	if p.PID, err = p.started(); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // how the supervisor ends says nothing of the program
		return nil, errors.Join(err, pipe.Close())
	}
	return p, nil
}

// started reads the first line of the report.
func (p *Process) started() (pid int, err error) {
	if err := p.pipe.SetReadDeadline(time.Now().Add(startTime)); err != nil {
		return 0, err
	}
	line, err := p.report.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the supervisor did not start it: %w", err)
	}
	line = strings.TrimSpace(line)
	if reason, failed := strings.CutPrefix(line, "error "); failed {
		return 0, errors.New(reason)
	}
	if _, err := fmt.Sscanf(line, "started %d", &pid); err != nil {
		return 0, fmt.Errorf("the supervisor says %q", line)
	}
	return pid, p.pipe.SetReadDeadline(time.Time{})
}

// Kill kills the program and all its descendants. It may be called at any time.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // should the program have stopped it
}

// Abandon kills the supervisor, in case it misbehaves; the program ends with it, but its
// descendants do not.
func (p *Process) Abandon() { _ = p.cmd.Process.Kill() }

// Wait waits until the program and all its descendants have ended, and returns the
// program's exit status. ok is false if the supervisor ended before it knew.
func (p *Process) Wait() (status syscall.WaitStatus, ok bool) {
	line, _ := p.report.ReadString('\n')
	_ = p.cmd.Wait()
	_ = p.pipe.Close()
	var number int
	_, err := fmt.Sscanf(line, "ended %d", &number)
	return syscall.WaitStatus(number), err == nil
}

// name is the supervisor's name among the processes, by which it knows what it is.
const name = "cage-supervisor"

// reportTo is the file descriptor on which the supervisor reports.
const reportTo = 3

func init() {
	if len(os.Args) == 3 && os.Args[0] == name {
		os.Exit(supervise(os.Args[1], os.Args[2]))
	}
}

// supervise runs the program until it and all its descendants have ended. It reports
// its process number, or why it could not be started, and in the end its wait status.
func supervise(limit, path string) int {
	runtime.LockOSThread() // the program ends with the thread that started it
	unix.CloseOnExec(reportTo)
	report := os.NewFile(reportTo, "report")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	child, err := begin(limit, path)
	if err != nil {
		fmt.Fprintf(report, "error %v\n", err)
		return 1
	}
	// The program's outputs end when it does.
	err = errors.Join(os.Stdin.Close(), os.Stdout.Close(), os.Stderr.Close())
	fmt.Fprintf(report, "started %d\n", child)
	if err != nil {
		return 1
	}
	go func() {
		<-stop
		_ = syscall.Kill(-child, syscall.SIGKILL) // and its group; reap does the rest
		_ = syscall.Kill(child, syscall.SIGKILL)
	}()
	fmt.Fprintf(report, "ended %d\n", reap(child))
	return 0
}

// begin starts the program, in a group of its own, with the limit of memory.
func begin(limit, path string) (pid int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("supervise: %w", err)
	}
	bytes, err := strconv.ParseUint(limit, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("limit of memory: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: bytes}); err != nil {
		return 0, fmt.Errorf("limit of memory: %w", err)
	}
	cmd := exec.Command(path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, Explain(path, err)
	}
	return cmd.Process.Pid, nil
}

// reap waits until the program has ended, then kills whatever else is left below this
// process, and returns the wait status of the program.
func reap(child int) (status syscall.WaitStatus) {
	ended := false
	for {
		if ended {
			killChildren()
		}
		var of syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &of, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // there is nobody to wait for
			return status
		case pid == child:
			status, ended = of, true
		}
	}
}

// killChildren kills the processes whose parent is this one: those that the program has
// left behind. When they have ended, this process becomes the parent of their children.
func killChildren() {
	self := []byte(strconv.Itoa(os.Getpid()))
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// NUMBER (NAME) STATE PARENT …; the name may hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && bytes.Equal(fields[1], self) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
