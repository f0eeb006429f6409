package study

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// exitInterrupted is the exit code of a training process that was interrupted.
const exitInterrupted = 130

// attempt trains or quantizes a cell and then evaluates it, in separate processes, until it is
// done, it fails, or ctx ends. The error is about the cell's directory; if a process fails, that is
// returned as the failure.
func (r *runner) attempt(ctx context.Context, c Cell) (State, *Failure, error) {
	dir := r.study.dir(c)
	previous, err := prepare(ctx, dir, c)
	if ctx.Err() != nil {
		return Interrupted, nil, nil
	}
	if err != nil {
		return Interrupted, nil, err
	}
	_, completed, err := metrics.ReadNumbers(r.study.run(c).Summary())
	if _, unread := errors.AsType[syscall.Errno](err); unread {
		return Interrupted, nil, err
	}
	state, failure := Done, (*Failure)(nil)
	if !completed || c.Quantize != nil {
		state, failure = r.awaitSource(ctx, c)
	}
	switch {
	case state != Done:
		err = nil
	case c.Quantize != nil:
		state, failure, err = r.quantize(ctx, c)
	case err != nil || !completed: // train replaces a damaged summary
		state, failure, err = r.train(ctx, c)
	}
	if err == nil && state == Done {
		state, failure, err = r.evaluate(ctx, c)
	}
	if err == nil && state == Done {
		err = r.study.writeChecksums(c)
	}
	if err == nil && state == Done && r.study.Checkpoints == DeleteCheckpoints &&
		!r.study.isSource(c) {
		err = checkpoint.RemoveAll(r.study.run(c).Checkpoints())
	}
	if failure != nil {
		failure.Attempts = previous + 1
	}
	return state, failure, err
}

func (r *runner) train(ctx context.Context, c Cell) (State, *Failure, error) {
	dir, grace := r.study.dir(c), r.study.grace()
	failure, err := r.process(ctx, c, logFile, nil, slices.Concat(r.opts.Command, []string{
		dir.Join(cellFile).Name, "--resume", "--quiet", "--lifeline=" + grace.String(),
	}))
	if err != nil {
		return Interrupted, nil, err
	}
	_, completed, err := metrics.ReadNumbers(dir.Summary())
	switch {
	case err != nil:
		return Interrupted, nil, err
	case completed: // the summary is written last, so the exit status does not matter
		return Done, nil, nil
	case failure == nil && ctx.Err() != nil, failure != nil && failure.stopped:
		return Interrupted, nil, nil
	case failure == nil:
		const noResult = "its process ended: exit status 0, without a result"
		failure = &Failure{Exit: "exit status 0", Error: noResult, File: logFile}
	}
	return Failed, failure, nil
}

// tool runs a cage command on a cell. Unlike training, the command need not save anything if it is
// stopped.
func (r *runner) tool(
	ctx context.Context, c Cell, log string, output *vfs.Path, arguments []string,
) (State, *Failure, error) {
	failure, err := r.process(ctx, c, log, output, slices.Concat(r.opts.Tool, arguments))
	switch {
	case err != nil, failure != nil && ctx.Err() != nil:
		return Interrupted, nil, err
	case failure != nil:
		return Failed, failure, nil
	}
	return Done, nil, nil
}

// process runs a command that works on a cell, and returns a failure unless the command exits with
// status 0. Its output is appended to the named log in the cell's directory, except that its
// standard output goes to output if that is not nil. The error is about these files.
func (r *runner) process(
	ctx context.Context, c Cell, logName string, outputFile *vfs.Path, command []string,
) (failure *Failure, err error) {
	log, err := r.study.dir(c).Join(logName).OpenFile(os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	start, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	threads := fmt.Sprintf("GOMAXPROCS=%d", r.plan.Threads)
	cmd.Env = slices.Concat(os.Environ(), []string{threads}, c.environment)
	output, err := vfs.OSFile(log)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = output, output
	if outputFile != nil {
		file, err := outputFile.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		if cmd.Stdout, err = vfs.OSFile(file); err != nil {
			return nil, err
		}
	}
	// A Ctrl-C at the terminal reaches only the study, which then stops the process in an orderly way.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The standard input of the process is open for as long as the process should run: it is closed
	// when ctx ends, and when this process ends for any reason. A process that has not stopped after
	// grace is killed.
	alive, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err = <-ended:
		case <-ctx.Done():
			_ = alive.Close()
			select {
			case err = <-ended:
			case <-time.After(r.study.grace()):
				_ = cmd.Process.Kill()
				<-ended
				err = errors.New("was killed, because it did not stop")
				failure = &Failure{stopped: true}
			}
		}
	}
	if err == nil {
		return nil, nil
	}
	if failure == nil {
		state := cmd.ProcessState // nil if it has not started
		failure = &Failure{stopped: state != nil && state.ExitCode() == exitInterrupted}
	}
	failure.Exit = err.Error()
	failure.readError(log, start)
	return failure, nil
}

// prepare makes the cell's directory ready for a process, and returns the number of failed
// attempts.
func prepare(ctx context.Context, dir rundir.Dir, c Cell) (attempts int, err error) {
	if err := dir.MkdirAll(); err != nil {
		return 0, err
	}
	if err := awaitFree(ctx, dir.Lock()); err != nil {
		return 0, err
	}
	if err := checkOurs(dir.Path); err != nil {
		return 0, err
	}
	if err := removeAbandoned(dir.Path, cellFile, failedFile); err != nil {
		return 0, err
	}
	// What follows may change files of the cell.
	err = readOurs(dir.Join(checksumsFile), &map[string]string{})
	if damage, ok := errors.AsType[*damagedFile](err); ok {
		err = damage.putAside()
	} else if err == nil {
		err = errors.Join(dir.Join(checksumsFile).Remove(), dir.SyncDir())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	if err := atomicfile.WriteBytes(dir.Join(cellFile), c.Config.Encode()); err != nil {
		return 0, err
	}
	failure, err := readFailure(dir)
	switch damage := (*damagedFile)(nil); {
	case errors.Is(err, os.ErrNotExist):
		return 0, nil
	case errors.As(err, &damage): // its number of attempts is unknown
		return 0, damage.putAside()
	case err != nil:
		return 0, err
	}
	return failure.Attempts, errors.Join(dir.Join(failedFile).Remove(), dir.SyncDir())
}

// checkOurs returns an error if the study would overwrite a file in the cell's directory that it
// did not write. The study writes the cell's configuration first; if that exists, the logs are also
// its own.
func checkOurs(dir vfs.Path) error {
	cell := dir.Join(cellFile)
	if err := atomicfile.CheckOurs(cell, atomicfile.Begins(config.Heading)); err != nil {
		return err
	}
	begun, err := cell.Exists()
	if err != nil || begun {
		return err
	}
	for _, name := range []string{logFile, evaluationLog, failedFile, checksumsFile} {
		foreign := func(io.Reader) bool { return false }
		err = errors.Join(err, atomicfile.CheckOurs(dir.Join(name), foreign))
	}
	return err
}

// removeAbandoned must not be called while these files are being written.
func removeAbandoned(dir vfs.Path, names ...string) error {
	match := func(name string) bool { return slices.Contains(names, name) }
	return atomicfile.RemoveAbandoned(dir, match)
}

const (
	tailBytes = 16 << 10
	tailLines = 40
)

// readError reads the last messages of the process from its log; those of this attempt begin at the
// offset start.
func (f *Failure) readError(log vfs.File, start int64) {
	end, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		f.Error = err.Error()
		return
	}
	if start > end { // the log was emptied since
		start = 0
	}
	start = max(start, end-tailBytes)
	text := make([]byte, end-start)
	n, err := log.ReadAt(text, start)
	if err != nil && !errors.Is(err, io.EOF) {
		f.Error = fmt.Sprintf("its process ended: %s; its log cannot be read: %v", f.Exit, err)
		return
	}
	lines := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(text[:n], []byte("?")))), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	f.Log, f.File = strings.Join(lines, "\n"), filepath.Base(log.Name())
	f.Error = "its process ended: " + f.Exit
	for i := len(lines) - 1; i >= 0; i-- {
		// This is the final error message of the command, which may have several lines.
		if message, ok := strings.CutPrefix(lines[i], "cage: "); ok {
			f.Error = strings.Join(append([]string{message}, lines[i+1:]...), "\n")
			return
		}
		if strings.HasPrefix(lines[i], "panic: ") || strings.HasPrefix(lines[i], "fatal error: ") {
			f.Error += ": " + lines[i]
			return
		}
	}
}
