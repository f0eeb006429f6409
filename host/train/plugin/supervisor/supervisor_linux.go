package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
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
