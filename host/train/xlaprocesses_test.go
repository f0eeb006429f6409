package train_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/testing/pjrtrecord"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
)

// part is one process of a training: the cage command.
type part struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	output bytes.Buffer
}

// launcher is a source of process ranks, with the variables that it sets in the environment of each
// process.
type launcher struct {
	source      func(rank, size int, address string) string
	environment func(rank, size int, host, port string) []string
}

var (
	byHand = launcher{
		func(rank, size int, address string) string {
			return fmt.Sprintf("%d/%d@%s", rank, size, address)
		},
		func(int, int, string, string) []string { return nil },
	}
	byTorchrun = launcher{
		func(int, int, string) string { return "torchrun" },
		func(rank, size int, host, port string) []string {
			return []string{fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", size), "MASTER_ADDR=" +
				host, "MASTER_PORT=" + port, fmt.Sprint("LOCAL_RANK=", rank)}
		},
	}
	bySlurm = launcher{
		func(int, int, string) string { return "slurm" },
		func(rank, size int, host, _ string) []string {
			return []string{fmt.Sprint("SLURM_PROCID=", rank), fmt.Sprint("SLURM_NTASKS=", size),
				"SLURM_JOB_NODELIST=" + host + ",other", fmt.Sprint("SLURM_JOB_ID=", os.Getpid()),
				fmt.Sprint("SLURM_LOCALID=", rank)}
		},
	}
)

// startParts starts the processes of a training. By rank, more has an additional argument, and
// environment an additional variable.
func startParts(
	t *testing.T, cage string, cfg *config.Config, size int, by launcher, more,
	environment map[int]string,
) []*part {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.toml")
	write(t, path, cfg.Encode())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	var parts []*part
	for rank := range size {
		p := &part{cmd: exec.Command(cage, "train", path, "--resume", "--processes",
			by.source(rank, size, address)), ended: make(chan struct{})}
		if more[rank] != "" {
			p.cmd.Args = append(p.cmd.Args, more[rank])
		}
		p.cmd.Env = append(os.Environ(), plugin.PathVariable+"="+testrun.Finder(t).Dirs[0],
			pjrtrecord.DevicesVariable+"="+fmt.Sprint(cfg.Device.Count/size),
			pjrtrecord.DirectoryVariable+"=")
		p.cmd.Env = append(p.cmd.Env, by.environment(rank, size, host, port)...)
		if environment[rank] != "" {
			p.cmd.Env = append(p.cmd.Env, environment[rank])
		}
		p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			p.cmd.Wait()
			close(p.ended)
		}()
		t.Cleanup(func() {
			p.cmd.Process.Kill()
			<-p.ended
		})
		parts = append(parts, p)
	}
	return parts
}

// end waits for the end of a process and returns its exit code.
func (p *part) end(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		t.Fatalf("a process does not end within %v: %s", within, &p.output)
	}
	return p.cmd.ProcessState.ExitCode()
}

// says fails unless the output contains all texts.
func (p *part) says(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.output.String(), text) {
			t.Errorf("the output does not say %q: %s", text, &p.output)
		}
	}
}

// awaitCheckpoint waits until a run has a checkpoint of that step or a later one.
func awaitCheckpoint(t *testing.T, cfg *config.Config, step int, parts []*part) {
	t.Helper()
	for began := time.Now(); newest(t, cfg) < step; time.Sleep(5 * time.Millisecond) {
		for _, p := range parts {
			select {
			case <-p.ended:
				t.Fatalf("a process has ended before: %s", &p.output)
			default:
			}
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("there is no checkpoint: %s", &parts[0].output)
		}
	}
}

// completes runs processes to the end.
func completes(t *testing.T, cage string, cfg *config.Config, size int, by launcher) {
	t.Helper()
	for rank, p := range startParts(t, cage, cfg, size, by, nil, nil) {
		if code := p.end(t, 5*time.Minute); code != 0 {
			t.Fatalf("process %d ends with exit code %d: %s", rank, code, &p.output)
		}
		if rank > 0 && p.output.Len() > 0 {
			t.Errorf("process %d says %s", rank, &p.output)
		}
	}
}

// partsOf returns the paths of the parts of a checkpoint.
func partsOf(t *testing.T, cfg *config.Config, step int) (paths []string) {
	t.Helper()
	dir := rundir.At(cfg.Train.Out).Checkpoints()
	f, err := checkpoint.Open(dir.Join(checkpoint.FileName(step)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Parts {
		paths = append(paths, dir.Join(p.File).Name)
	}
	return paths
}

// sameCheckpoints fails unless two runs have the same checkpoints, with two parts each in the
// second run.
func sameCheckpoints(t *testing.T, one, parts *config.Config) {
	t.Helper()
	list, err := checkpoint.List(rundir.At(one.Train.Out).Checkpoints())
	if err != nil || len(list) == 0 {
		t.Fatalf("%d checkpoints, %v", len(list), err)
	}
	for _, e := range list {
		if n := len(partsOf(t, parts, e.Step)); n != 2 {
			t.Errorf("the checkpoint of step %d has %d parts", e.Step, n)
		}
		testrun.SameTensors(t, fmt.Sprint("checkpoints of step ", e.Step),
			testrun.Checkpoint(t, one.Train.Out, e.Step), testrun.Checkpoint(t, parts.Train.Out, e.Step))
	}
}

// TestXLAProcesses checks that processes that train together give the same bits as one with as many
// devices. If one of them ends, so do the others, and the run continues from its newest checkpoint.
func TestXLAProcesses(t *testing.T) {
	onXLA(t, 2)
	pjrtrecord.Exactly(t)
	cage := testrun.Cage(t, "cuda", "netgo", "osusergo")
	whole := onCUDA(t, testrun.Config(t, testrun.TwoLayers, "train.checkpoint_every=4"), 2)
	testrun.Train(t, whole, train.Options{})

	t.Run("two", func(t *testing.T) {
		cfg := testrun.Elsewhere(t, whole)
		completes(t, cage, cfg, 2, byTorchrun)
		testrun.SameRun(t, "one process and two", whole.Train.Out, cfg.Train.Out)

		again := startParts(t, cage, cfg, 2, byHand,
			map[int]string{0: "--resume=false", 1: "--resume=false"}, nil)
		for rank, p := range again {
			if code := p.end(t, 5*time.Minute); code != 1 ||
				strings.Count(p.output.String(), "cage: ") != 1 {
				t.Errorf("process %d ends with exit code %d: %s", rank, code, &p.output)
			}
			p.says(t, "already contains a run")
		}
		again[1].says(t, "cage: process 0 of 2", "has failed")
	})
	t.Run("two that divide everything", func(t *testing.T) {
		one := onCUDA(t, testrun.Config(t, testrun.TwoLayers, "train.checkpoint_every=4"), 2,
			`device.shard="full"`)
		testrun.Train(t, one, train.Options{})
		cfg := testrun.Elsewhere(t, one)
		completes(t, cage, cfg, 2, byHand)
		testrun.SameRun(t, "one process and two", one.Train.Out, cfg.Train.Out)
		sameCheckpoints(t, one, cfg)

		// A run that continues from the two parts of step 6 ends with the same bits in one process
		// and in two, also if a part is damaged.
		stopped := testrun.Elsewhere(t, one)
		for rank, p := range startParts(t, cage, stopped, 2, byHand,
			map[int]string{0: "--stop-after=6", 1: "--stop-after=6"}, nil) {
			if code := p.end(t, 5*time.Minute); code != 0 {
				t.Errorf("process %d ends with exit code %d: %s", rank, code, &p.output)
			}
		}
		for _, c := range []struct {
			name      string
			processes int
			spoil     func(part string) error
		}{
			{"intact, one process", 1, func(string) error { return nil }},
			{"intact, two processes", 2, func(string) error { return nil }},
			{"found to be damaged when it is opened, one process", 1,
				func(part string) error { return os.Truncate(part, 100) }},
			{"found to be damaged when it is read, two processes", 2, func(part string) error {
				data, err := os.ReadFile(part)
				if err != nil {
					return err
				}
				data[len(data)-1] ^= 1
				return os.WriteFile(part, data, 0o644)
			}},
		} {
			left := testrun.Elsewhere(t, stopped)
			if err := os.CopyFS(left.Train.Out, os.DirFS(stopped.Train.Out)); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(partsOf(t, left, 6)[1]); err != nil {
				t.Fatal(err)
			}
			if c.processes == 1 {
				testrun.Train(t, testrun.Again(t, left), train.Options{Resume: true})
			} else {
				for rank, p := range startParts(t, cage, left, 2, byHand, nil, nil) {
					if code := p.end(t, 5*time.Minute); code != 0 {
						t.Errorf("%s: process %d ends with exit code %d: %s", c.name, rank, code, &p.output)
					}
				}
			}
			testrun.SameRun(t, "one process, and two and then others, part "+c.name, one.Train.Out,
				left.Train.Out)
			aside := checkpoint.FileName(6) + checkpoint.DamagedSuffix
			if there, err := rundir.At(left.Train.Out).Checkpoints().Join(aside).Exists(); err != nil ||
				there == strings.HasPrefix(c.name, "intact") {
				t.Errorf("%s: that %s is there is %t, %v", c.name, aside, there, err)
			}
		}

		// Every step saves a checkpoint, so that the process is killed during a save.
		killed := testrun.Elsewhere(t, one, "train.checkpoint_every=1")
		parts := startParts(t, cage, killed, 2, byHand, nil, nil)
		awaitCheckpoint(t, killed, 3, parts)
		if err := parts[1].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if code := parts[0].end(t, 15*time.Second); code != 1 {
			t.Errorf("the other ends with exit code %d", code)
		}
		parts[0].says(t, "process 1 of 2", "is gone", "ewest checkpoint is of step",
			"--resume continues from there")
		if strings.Contains(parts[0].output.String(), "training continues") {
			t.Errorf("a training that ends says that it goes on: %s", &parts[0].output)
		}
		<-parts[1].ended
		completes(t, cage, killed, 2, byHand)
		testrun.SameRun(t, "undisturbed and killed", one.Train.Out, killed.Train.Out)
		files, err := rundir.At(killed.Train.Out).Checkpoints().ReadDir()
		if err != nil || len(files) != 3*killed.Train.Keep {
			t.Errorf("%v are left of %d checkpoints in two parts, %v", files, killed.Train.Keep, err)
		}
	})
	t.Run("two that divide everything, and learn from what they begin with", func(t *testing.T) {
		one := onCUDA(t, testrun.Config(t, "train.steps=3", fmt.Sprintf("model.init=%q", whole.Train.Out),
			testrun.TwoLayers, `train.distillation={teacher="initial", weight=0.5}`), 2,
			`device.shard="full"`)
		testrun.Train(t, one, train.Options{})
		cfg := testrun.Elsewhere(t, one)
		for rank, p := range startParts(t, cage, cfg, 2, byHand, nil, nil) {
			if code := p.end(t, 5*time.Minute); code != 0 {
				t.Errorf("process %d ends with exit code %d: %s", rank, code, &p.output)
			}
		}
		testrun.SameRun(t, "one process and two", one.Train.Out, cfg.Train.Out)
	})
	t.Run("one cannot write its part", func(t *testing.T) {
		cfg := onCUDA(t, testrun.Config(t, testrun.TwoLayers, "train.checkpoint_every=4"), 2,
			`device.shard="full"`)
		// process 1 cannot write files of more than 8 KiB
		limited := filepath.Join(t.TempDir(), "limited")
		write(t, limited, []byte(
			"#!/bin/sh\ncase \"$*\" in *1/2@*) ulimit -f 8;; esac\nexec "+cage+" \"$@\"\n"))
		if err := os.Chmod(limited, 0o755); err != nil {
			t.Fatal(err)
		}
		parts := startParts(t, limited, cfg, 2, byHand, nil, nil)
		fail := func(parts []*part) {
			for rank, p := range parts {
				if code := p.end(t, 5*time.Minute); code != 1 {
					t.Errorf("process %d ends with exit code %d: %s", rank, code, &p.output)
				}
			}
		}
		fail(parts)
		parts[0].says(t, "the checkpoint could not be saved: training continues",
			"process 1 could not write its part", "save the checkpoint of step")
		parts[1].says(t, "this process could not write its part of the checkpoint", "file too large")
		if left, err := rundir.At(cfg.Train.Out).Checkpoints().ReadDir(); err != nil || len(left) > 0 {
			t.Errorf("%v are left, %v", left, err)
		}
		// Only the checkpoint at the end is due.
		last := startParts(t, limited, testrun.Elsewhere(t, cfg, "train.checkpoint_every=0"), 2, byHand,
			nil, nil)
		fail(last)
		last[0].says(t, "process 1 could not write its part: see its log")
		last[1].says(t, "this process could not write its part of the checkpoint", "file too large")
		completes(t, cage, cfg, 2, byHand)
		if len(partsOf(t, cfg, cfg.Train.Steps)) != 2 {
			t.Error("the last checkpoint does not have two parts")
		}
	})
	t.Run("two with two devices each, micro-batches", func(t *testing.T) {
		t.Setenv(pjrtrecord.DevicesVariable, "4")
		// Four numbers are added in another order, which changes their last bits. Without a quantizer
		// nothing else differs. With a quantizer, a last bit eventually changes a code (here at step 11),
		// and the trainings diverge from then on.
		for _, c := range []struct {
			name   string
			change []string
			steps  int
		}{
			{"plain", []string{`quantizer={plugin="none"}`, `method.form="off"`}, whole.Train.Steps},
			{"quantized", nil, 8},
		} {
			one := onCUDA(t, whole, 4, append(c.change, "train.accumulate=2")...)
			testrun.Train(t, one, train.Options{})
			cfg := testrun.Elsewhere(t, one)
			completes(t, cage, cfg, 2, bySlurm)
			want, got := losses(t, one.Train.Out), losses(t, cfg.Train.Out)
			for i := range c.steps {
				if !(relative(got[i], want[i]) < 1e-6) {
					t.Errorf("%s: loss of step %d is %v, want %v", c.name, i+1, got[i], want[i])
				}
			}
		}
	})
	for killed := range 2 {
		t.Run(fmt.Sprintf("process %d is killed", killed), func(t *testing.T) {
			cfg := testrun.Elsewhere(t, whole)
			parts := startParts(t, cage, cfg, 2, byHand, nil, nil)
			awaitCheckpoint(t, cfg, 4, parts)
			began := time.Now()
			if err := parts[killed].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			other := parts[1-killed]
			code := other.end(t, 15*time.Second)
			t.Logf("the other ended after %v: %s", time.Since(began), &other.output)
			if code != 1 || strings.Count(other.output.String(), "cage: ") != 1 {
				t.Errorf("the other ends with exit code %d: %s", code, &other.output)
			}
			other.says(t, fmt.Sprintf("process %d of 2", killed), "is gone", "ewest checkpoint is of step",
				"--resume continues from there")
			<-parts[killed].ended

			left := testrun.Elsewhere(t, cfg, "device.count=1")
			if err := os.CopyFS(left.Train.Out, os.DirFS(cfg.Train.Out)); err != nil {
				t.Fatal(err)
			}
			testrun.Train(t, left, train.Options{Resume: true})
			want, got := losses(t, whole.Train.Out), losses(t, left.Train.Out)
			for i := range want {
				if !(relative(got[i], want[i]) < 1e-5) {
					t.Errorf("on what is left the loss of step %d is %v, want %v", i+1, got[i], want[i])
				}
			}
			completes(t, cage, cfg, 2, byHand)
			testrun.SameRun(t, "undisturbed and killed", whole.Train.Out, cfg.Train.Out)
		})
	}
	for failing := range 2 {
		t.Run(fmt.Sprintf("process %d fails", failing), func(t *testing.T) {
			cfg := testrun.Elsewhere(t, whole)
			parts := startParts(t, cage, cfg, 2, byHand, nil,
				map[int]string{failing: pjrtrecord.FaultVariable +
					"=execute|5|13|module @step|an illegal address"})
			for rank, p := range parts {
				if code := p.end(t, 5*time.Minute); code != 1 {
					t.Errorf("process %d ends with exit code %d", rank, code)
				}
			}
			parts[failing].says(t, "cage: step 6", "an illegal address")
			parts[1-failing].says(t, fmt.Sprintf("process %d of 2", failing), "has failed: step 6",
				"an illegal address", "ewest checkpoint is of step 4")
			completes(t, cage, cfg, 2, byHand)
			testrun.SameRun(t, "undisturbed and failed", whole.Train.Out, cfg.Train.Out)
		})
	}
	t.Run("one is interrupted", func(t *testing.T) {
		cfg := testrun.Elsewhere(t, whole)
		parts := startParts(t, cage, cfg, 2, byHand, nil, nil)
		awaitCheckpoint(t, cfg, 4, parts)
		if err := parts[1].cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		for rank, p := range parts {
			if code := p.end(t, 5*time.Minute); code != 130 {
				t.Errorf("process %d ends with exit code %d: %s", rank, code, &p.output)
			}
		}
		parts[0].says(t, "another process of this training was told to stop; continue with --resume")
		completes(t, cage, cfg, 2, byHand)
		testrun.SameRun(t, "undisturbed and interrupted", whole.Train.Out, cfg.Train.Out)
	})
	t.Run("other settings", func(t *testing.T) {
		parts := startParts(t, cage, testrun.Elsewhere(t, whole), 2, byHand,
			map[int]string{1: "--set=schedule.rate=1e-3"}, nil)
		for _, p := range parts {
			if code := p.end(t, 5*time.Minute); code != 1 {
				t.Errorf("a process ends with exit code %d", code)
			}
			p.says(t, "processes 0 and 1 do not have the same configuration")
		}
	})
}
