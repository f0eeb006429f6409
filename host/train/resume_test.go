package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

func TestResumeWithAnotherConfiguration(t *testing.T) {
	cfg := testrun.Config(t)
	runParts(t, cfg, 3)
	changed := testrun.Again(t, cfg, "seed=5", "method.lambda=1.0", "quantizer.bits=3",
		"optimizer.beta2=0.99", `device.kernels="graph"`, "train.log_every=2")
	_, err := train.Run(t.Context(), changed, train.Options{Resume: true, Finder: testrun.Finder(t)})
	if err == nil {
		t.Fatal("another configuration was accepted")
	}
	for _, want := range []string{
		"run.toml", "seed was 0, is 5", "method.lambda was 2.0, is 1.0",
		"quantizer.weights.bits was 4, is 3",
		"quantizer.activations.bits was 4, is 3", "optimizer.beta2 was not set, is 0.99",
		`device.kernels was "auto", is "graph"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "log_every") {
		t.Errorf("the error names a key that is free to change: %v", err)
	}
	testrun.Train(t, testrun.Again(t, cfg, "train.log_every=7", "train.keep=1", "train.eval_every=5",
		`train.recompute="blocks"`), train.Options{Resume: true})
}

// TestResumeWithAnotherExecutable checks that a run depends on the programs, not on the
// executables: other executables that return the same programs continue it.
func TestResumeWithAnotherExecutable(t *testing.T) {
	testlevel.Long(t, "starts plugins anew")
	cfg := testrun.Config(t)
	runParts(t, cfg, 3)
	// A recorder's scripts have other hashes than the plugins that they start.
	_, err := train.Run(t.Context(), testrun.Again(t, cfg),
		train.Options{Resume: true, Finder: testrun.NewRecorder(t).Finder})
	if err != nil {
		t.Fatal(err)
	}
	whole := testrun.Elsewhere(t, cfg)
	testrun.Train(t, whole, train.Options{})
	testrun.SameRun(t, "a run continued by other executables", cfg.Train.Out, whole.Train.Out)
}

func TestDirectoryInUse(t *testing.T) {
	cfg := testrun.Config(t)
	runParts(t, cfg, 1)
	_, err := train.Run(t.Context(), testrun.Again(t, cfg), train.Options{Finder: testrun.Finder(t)})
	var ce *plaintoml.Error
	if !errors.As(err, &ce) || ce.Key != "train.out" || !strings.Contains(ce.Hint, "--resume") {
		t.Errorf("got %v, want an error about train.out that names --resume", err)
	}
}

// TestDamagedCheckpoint checks that a damaged newest checkpoint is skipped, and that the steps
// after the previous one are computed again. If no checkpoint is intact, the run does not silently
// start over.
func TestDamagedCheckpoint(t *testing.T) {
	whole := testrun.Config(t, "train.checkpoint_every=4", "train.keep=10")
	damaged := testrun.Elsewhere(t, whole)
	testrun.Train(t, whole, train.Options{})
	runParts(t, damaged, 12)
	damage := func(step int) {
		path := filepath.Join(rundir.At(damaged.Train.Out).Checkpoints().Name, checkpoint.FileName(step))
		data := read(t, path)
		data[len(data)-100] ^= 1
		write(t, path, data)
	}
	damage(12)
	testrun.Train(t, testrun.Again(t, damaged), train.Options{Resume: true})
	testrun.SameRun(t, "whole, and after damage", whole.Train.Out, damaged.Train.Out)
	aside := filepath.Join(rundir.At(damaged.Train.Out).Checkpoints().Name,
		checkpoint.FileName(12)+checkpoint.DamagedSuffix)
	if _, err := os.Stat(aside); err != nil {
		t.Errorf("the damaged checkpoint was not put aside: %v", err)
	}
	for _, step := range []int{4, 8, 12, 16, 20} {
		damage(step)
	}
	if _, err := train.Run(t.Context(), testrun.Again(t, damaged),
		train.Options{Resume: true, Finder: testrun.Finder(t)}); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("with damaged checkpoints only: %v", err)
	}
}

// TestCheckpointThatIsNotFinite checks that a newest checkpoint with NaN is skipped like a damaged
// one. If there is no other, it is used with a warning.
func TestCheckpointThatIsNotFinite(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	for _, name := range []string{"param/layers.0.mlp.down", "state/layers.0.mlp.down/v"} {
		whole := testrun.Config(t, "train.checkpoint_every=4", "train.keep=2")
		testrun.Train(t, whole, train.Options{})
		poisoned := testrun.Elsewhere(t, whole)
		runParts(t, poisoned, 12)
		last := func([]int) (from, to int) { return 7, 8 }
		poison(t, poisoned, name, nan, last)
		log := &lines{}
		logger := hclog.New(&hclog.LoggerOptions{Output: log})
		testrun.Train(t, testrun.Again(t, poisoned), train.Options{Resume: true, Logger: logger})
		testrun.SameRun(t, "whole, and after a checkpoint with NaN", whole.Train.Out, poisoned.Train.Out)
		aside := checkpoint.FileName(12) + checkpoint.NotFiniteSuffix
		if log.count(aside) != 1 ||
			log.count("a checkpoint with NaN or infinite values was skipped") != 1 ||
			log.count("step=8") != 1 {
			t.Errorf("the log does not name %s and step 8:\n%s", aside, log.text.String())
		}

		alone := testrun.Elsewhere(t, whole)
		runParts(t, alone, 2)
		poison(t, alone, name, nan, last)
		_, err := train.Run(t.Context(), testrun.Again(t, alone),
			train.Options{Resume: true, Finder: testrun.Finder(t), Logger: logger})
		if !errors.Is(err, train.ErrNotFinite) || log.count("no checkpoint has finite values") != 1 {
			t.Errorf("from the only checkpoint: %v; the log:\n%s", err, log.text.String())
		}
	}
}

// TestPruningCountsIntactCheckpoints checks that a checkpoint that is damaged during a run is
// renamed, and that train.keep intact ones are kept.
func TestPruningCountsIntactCheckpoints(t *testing.T) {
	cfg := testrun.Config(t, "train.checkpoint_every=4", "train.keep=2")
	spoil := func(step int) {
		path := filepath.Join(rundir.At(cfg.Train.Out).Checkpoints().Name, checkpoint.FileName(step))
		if err := os.Truncate(path, 100); err != nil {
			t.Error(err)
		}
	}
	console := &callAt{at: map[string]func(){"step 9/20": func() { spoil(8) }}}
	if _, err := train.Run(t.Context(), cfg,
		train.Options{Finder: testrun.Finder(t), Console: console}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(rundir.At(cfg.Train.Out).Checkpoints().Name)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{checkpoint.FileName(8) + checkpoint.DamagedSuffix, checkpoint.FileName(16),
		checkpoint.FileName(20)}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// callAt is a console that calls each function once, when its text is shown.
type callAt struct {
	at    map[string]func()
	mu    sync.Mutex
	shown strings.Builder
}

func (c *callAt) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown.Write(p)
	for text, f := range c.at {
		if strings.Contains(c.shown.String(), text) {
			delete(c.at, text)
			f()
		}
	}
	return len(p), nil
}

// TestFinishedRun checks that resuming a finished run evaluates it again, with the same summary and
// no further records.
func TestFinishedRun(t *testing.T) {
	cfg := testrun.Config(t)
	first := testrun.Train(t, cfg, train.Options{})
	before := testrun.Records(t, cfg.Train.Out)
	if err := os.Remove(rundir.At(cfg.Train.Out).Summary().Name); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		again := testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
		if diff := cmp.Diff(before, testrun.Records(t, cfg.Train.Out)); diff != "" {
			t.Errorf("the records changed:\n%s", diff)
		}
		again.StartSeconds, again.PluginSeconds = first.StartSeconds, first.PluginSeconds
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("the summary changed:\n%s", diff)
		}
	}
	if _, err := os.Stat(rundir.At(cfg.Train.Out).Summary().Name); err != nil {
		t.Error(err)
	}
}

// TestInterrupted interrupts a run between a step and what is due after it: an evaluation, a
// checkpoint, the final evaluation. The resumed run must do it.
func TestInterrupted(t *testing.T) {
	whole := testrun.Config(t, "train.checkpoint_every=5")
	testrun.Train(t, whole, train.Options{})
	cases := map[string]struct {
		text  string
		steps int
	}{
		"before an evaluation":        {"step 8/20", 8},
		"before a checkpoint":         {"step 5/20", 5},
		"before the final evaluation": {"step 20/20", 20},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Elsewhere(t, whole)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			summary, err := train.Run(ctx, cfg,
				train.Options{Finder: testrun.Finder(t),
					Console: &callAt{at: map[string]func(){c.text: cancel}}})
			if !errors.Is(err, train.ErrInterrupted) || summary == nil || summary.Completed ||
				summary.Steps != c.steps {
				t.Fatalf("got the error %v and the summary %+v", err, summary)
			}
			if n := newest(t, cfg); n != c.steps {
				t.Errorf("the newest checkpoint is of step %d, want %d", n, c.steps)
			}
			again := testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
			if !again.Completed {
				t.Errorf("the summary of the resumed run is %+v", again)
			}
			testrun.SameRun(t, "undisturbed and interrupted", whole.Train.Out, cfg.Train.Out)
		})
	}
}

func TestInterruptedBeforeItBegan(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	recorder := testrun.NewRecorder(t)
	recorder.Script(t, "quest", "exec sleep 600")
	time.AfterFunc(200*time.Millisecond, cancel)
	summary, err := train.Run(ctx, testrun.Config(t), train.Options{Finder: recorder.Finder})
	if summary != nil || !errors.Is(err, train.ErrInterrupted) {
		t.Errorf("got the summary %+v and the error %v", summary, err)
	}
	testrun.AwaitDeath(t, recorder.Processes(t), 2*time.Second)
}

// TestResumeWithOtherPrograms checks that a plugin that returns other programs cannot continue a
// run.
func TestResumeWithOtherPrograms(t *testing.T) {
	cfg := testrun.Config(t)
	runParts(t, cfg, 3)
	spoilHash(t, cfg)
	refused(t, "with another program", testrun.Again(t, cfg), train.Options{Resume: true},
		"a plugin has changed and now gives another program for weight ")
}

// spoilHash changes the recorded hashes of the weights' programs of a run.
func spoilHash(t *testing.T, cfg *config.Config) {
	t.Helper()
	path := rundir.At(cfg.Train.Out).Provenance().Name
	text := read(t, path)
	hash := regexp.MustCompile(`("weight [^"]*": ")[0-9a-f]{64}`)
	spoiled := hash.ReplaceAllString(string(text), "${1}"+strings.Repeat("0", 64))
	if spoiled == string(text) {
		t.Fatal("provenance.json holds no hash of a weight's program")
	}
	write(t, path, []byte(spoiled))
}

// TestLock checks that two processes cannot train in the same directory.
func TestLock(t *testing.T) {
	testlevel.Long(t, "starts processes")
	cfg := testrun.Config(t)
	if err := os.MkdirAll(cfg.Train.Out, 0o755); err != nil {
		t.Fatal(err)
	}
	other := flock.New(filepath.Join(cfg.Train.Out, ".lock"))
	if held, err := other.TryLock(); err != nil || !held {
		t.Fatal(held, err)
	}
	refused(t, "beside another process", cfg, train.Options{}, "another process is training")
	if err := other.Unlock(); err != nil {
		t.Fatal(err)
	}
	testrun.Train(t, testrun.Again(t, cfg), train.Options{})
}

// TestFinishedStaysFinished checks that the summary of a finished run stays if the run is resumed,
// and its evaluation fails or is interrupted.
func TestFinishedStaysFinished(t *testing.T) {
	cfg := testrun.Config(t, "train.steps=4")
	testrun.Train(t, cfg, train.Options{})
	path := rundir.At(cfg.Train.Out).Summary()
	before, err := path.ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	resume := func(ctx context.Context, log io.Writer) {
		t.Helper()
		logger := hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info})
		if _, err := train.Run(ctx, testrun.Again(t, cfg),
			train.Options{Resume: true, Finder: testrun.Finder(t), Logger: logger}); err == nil {
			t.Fatal("there is no error")
		}
		if after, err := path.ReadFile(); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%v\n%s", err, after)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	resume(ctx, onMessage{"resuming", cancel})
	flip(t, cfg.Data.Validation)
	resume(t.Context(), io.Discard)
}

// onMessage is a log that calls a function when a line contains a message.
type onMessage struct {
	message string
	call    func()
}

func (o onMessage) Write(line []byte) (int, error) {
	if strings.Contains(string(line), o.message) {
		o.call()
	}
	return len(line), nil
}

// TestStoppedWhileItLoads checks that a run stops if it is interrupted while it reads a checkpoint.
func TestStoppedWhileItLoads(t *testing.T) {
	testlevel.Long(t, "starts processes")
	cfg := testrun.Config(t, "train.steps=2000", "train.eval_every=0")
	runParts(t, cfg, 2)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logger := hclog.New(&hclog.LoggerOptions{Output: onMessage{"resuming", stop}, Level: hclog.Info})
	_, err := train.Run(ctx, testrun.Again(t, cfg),
		train.Options{Resume: true, Logger: logger, Finder: testrun.Finder(t)})
	if !errors.Is(err, train.ErrInterrupted) {
		t.Errorf("interrupted while it loads: %v", err)
	}
}

// TestMixtureMoves checks that a run can be resumed if the files of its mixture have been moved,
// but not with other files.
func TestMixtureMoves(t *testing.T) {
	first, validation := testrun.Dataset(t)
	text := strings.Replace(testrun.ConfigText("TRAIN", validation, filepath.Join(t.TempDir(), "run")),
		`train = "TRAIN"`,
		fmt.Sprintf("mixture = [{path = %q, weight = 1.0}, {path = %q, weight = 2.0}]", first,
			validation), 1)
	cfg := testrun.Parse(t, text)
	runParts(t, cfg, 4)
	moved := filepath.Join(t.TempDir(), "elsewhere.tokens")
	if err := os.Rename(first, moved); err != nil {
		t.Fatal(err)
	}
	again := testrun.Parse(t, strings.Replace(text, first, moved, 1))
	testrun.Train(t, again, train.Options{Resume: true})
	other := testrun.Parse(t, strings.Replace(text, first, validation, 1), "train.steps=21")
	if _, err := train.Run(t.Context(), other,
		train.Options{Resume: true, Finder: testrun.Finder(t)}); err == nil {
		t.Error("a run goes on with other data")
	}
}

// TestStopAfterTheEnd checks that a run whose steps are all done is complete, whatever step it was
// asked to stop after.
func TestStopAfterTheEnd(t *testing.T) {
	cfg := testrun.Config(t, "train.steps=4")
	testrun.Train(t, cfg, train.Options{})
	s := testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true, StopAfter: 2})
	if !s.Completed || s.ValLoss == nil {
		t.Errorf("the summary is %+v", s)
	}
}

// TestMovedFile checks that a resume is refused if a token file has moved from one source of a
// mixture to another: the data has the same hash, and another order.
func TestMovedFile(t *testing.T) {
	trainFile, validation := testrun.Dataset(t)
	tokens, err := os.ReadFile(trainFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"a1", "a2", "b1", "b2"} {
		testfile.Write(t, filepath.Join(dir, name+".tokens"), tokens)
	}
	mixture := func(first, second string) string {
		return fmt.Sprintf("data={validation=%q, mixture=[{path=%q, weight=1.0}, {path=%q, weight=1.0}]}",
			validation, filepath.Join(dir, first), filepath.Join(dir, second))
	}
	cfg := testrun.Config(t, mixture("a*.tokens", "b*.tokens"))
	_, err = train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t), StopAfter: 2})
	if !errors.Is(err, train.ErrInterrupted) {
		t.Fatal(err)
	}
	_, err = train.Run(t.Context(), testrun.Again(t, cfg, mixture("a1.tokens", "*[2b]*.tokens")),
		train.Options{Finder: testrun.Finder(t), Resume: true})
	if err == nil || !strings.Contains(err.Error(), "the sources have [1 3] files, and had [2 2]") {
		t.Errorf("got error %v", err)
	}
}
