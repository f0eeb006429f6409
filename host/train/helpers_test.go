package train_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
)

// largestDifference returns the largest difference of a tensor between two checkpoints.
func largestDifference(a, b map[string][]float32, name string) float64 {
	if len(a[name]) == 0 || len(a[name]) != len(b[name]) {
		return math.Inf(1)
	}
	d := 0.0
	for i, v := range a[name] {
		d = max(d, math.Abs(float64(v)-float64(b[name][i])))
	}
	return d
}

func maxValue(values []float32) float64 {
	largest := 0.0
	for _, v := range values {
		largest = max(largest, math.Abs(float64(v)))
	}
	return largest
}

// losses returns the training losses that a run recorded.
func losses(t *testing.T, dir string) []float64 {
	t.Helper()
	var list []float64
	for _, r := range records(t, dir) {
		if r.ValLoss == nil {
			list = append(list, float64(r.Loss))
		}
	}
	return list
}

func records(t *testing.T, dir string) []metrics.Record {
	t.Helper()
	list, err := metrics.Read[metrics.Record](rundir.At(dir).Metrics())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// opened opens a run to use its model. It is closed when the test ends.
func opened(t *testing.T, run string, o trained.Options) *trained.Model {
	t.Helper()
	o.Finder = testrun.Finder(t)
	m, err := trained.Open(t.Context(), run, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// refused fails unless a training ends with an error that contains all the given texts.
func refused(t *testing.T, what string, cfg *config.Config, o train.Options, says ...string) {
	t.Helper()
	o.Finder = testrun.Finder(t)
	_, err := train.Run(t.Context(), cfg, o)
	for _, say := range says {
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: the error is %v, want one that says %q", what, err, say)
		}
	}
}

// inParts trains a copy of a finished run in parts, and fails unless both end alike.
func inParts(t *testing.T, whole *config.Config, stops ...int) (parts *config.Config) {
	t.Helper()
	parts = testrun.Elsewhere(t, whole)
	runParts(t, parts, stops...)
	testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
	testrun.SameRun(t, "whole, and in parts", whole.Train.Out, parts.Train.Out)
	return parts
}

// madeOf returns the provenance of a run.
func madeOf(t *testing.T, run string) *provenance.Record {
	t.Helper()
	made, err := provenance.Read(rundir.At(run))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func relative(got, want float64) float64 { return math.Abs(got-want) / math.Abs(want) }

// Values for [poison]. A parameter that is NaN ends a run. A huge one in the embedding does not,
// but steps that read it are not finite in a model with these settings.
var (
	nan, huge = float32(math.NaN()), float32(math.MaxFloat32)
	doubling  = []string{`model.kind="granite"`, "model.embedding_multiplier=2.0"}
)

// poison sets a part of a tensor of a run's newest checkpoint to a value.
func poison(
	t *testing.T, cfg *config.Config, name string, value float32,
	part func(dims []int) (from, to int),
) {
	t.Helper()
	dir := rundir.At(cfg.Train.Out).Checkpoints()
	s := testrun.Newest(t, cfg.Train.Out)
	for i, tensor := range s.Tensors {
		if tensor.Name != name {
			continue
		}
		values, err := safetensors.Values[float32](tensor)
		if err != nil {
			t.Fatal(err)
		}
		from, to := part(tensor.Shape)
		for j := range values[from:to] {
			values[from+j] = value
		}
		if s.Tensors[i], err = safetensors.New(name, tensor.Shape, values); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := checkpoint.Save(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
}

// evaluate returns the loss of a run's newest checkpoint on its validation set.
func evaluate(t *testing.T, run string) float64 {
	t.Helper()
	loss, _ := testrun.Loss(t, run, trained.Options{})
	return loss
}

// The test binary runs itself as the host that is killed.
const (
	hostConfigEnv  = "TRAIN_TEST_CONFIG"
	hostPluginsEnv = "TRAIN_TEST_PLUGINS"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(hostConfigEnv); path != "" {
		if err := beHost(path, os.Getenv(hostPluginsEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testrun.Main(m)
}

// beHost starts or resumes the training of a configuration file.
func beHost(path, plugins string) error {
	cfg, err := config.Load(path, nil)
	if err != nil {
		return err
	}
	_, err = train.Run(context.Background(), cfg,
		train.Options{Resume: true, Finder: &plugin.Finder{Dirs: []string{plugins}}})
	return err
}

// host is a training in a process of its own.
type host struct {
	cmd   *exec.Cmd
	ended chan error
}

// startHost starts a host, which must be killed or waited for.
func startHost(t *testing.T, cfg *config.Config, finder *plugin.Finder) host {
	t.Helper()
	path := filepath.Join(t.TempDir(), "host.toml")
	write(t, path, cfg.Encode())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := host{exec.Command(self), make(chan error, 1)}
	h.cmd.Env = append(os.Environ(), hostConfigEnv+"="+path, hostPluginsEnv+"="+finder.Dirs[0])
	h.cmd.Stderr = os.Stderr
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { h.ended <- h.cmd.Wait() }()
	return h
}

// kill ends the process with SIGKILL and waits for its end. It returns false if the process had
// already ended.
func (h host) kill(t *testing.T) bool {
	t.Helper()
	_ = h.cmd.Process.Kill()
	<-h.ended
	return !h.cmd.ProcessState.Exited()
}

// await polls until a condition holds, the process has ended, or a minute has passed. It reports
// whether the condition holds.
func (h host) await(t *testing.T, what string, holds func() bool) bool {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if holds() {
			return true
		}
		select {
		case err := <-h.ended:
			h.ended <- err
			return holds()
		default:
		}
	}
	h.kill(t)
	t.Fatalf("after a minute: still waiting for %s", what)
	return false
}

// poisoned returns the configurations of n equal runs that have done two steps. In their newest
// checkpoint the embedding of the rare token is huge: every later step whose batch contains this
// token is not finite.
func poisoned(t *testing.T, n int, overrides ...string) []*config.Config {
	t.Helper()
	first := testrun.Config(t, append(doubling, overrides...)...)
	runParts(t, first, 2)
	poison(t, first, "param/embedding", huge, func(dims []int) (from, to int) {
		return testrun.Rare * dims[1], (testrun.Rare + 1) * dims[1]
	})
	list := []*config.Config{first}
	for len(list) < n {
		next := testrun.Elsewhere(t, first)
		if err := os.CopyFS(next.Train.Out, os.DirFS(first.Train.Out)); err != nil {
			t.Fatal(err)
		}
		list = append(list, next)
	}
	return list
}
