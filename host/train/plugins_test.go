package train_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/effort"
)

// watcher is a console that looks at every line for plugin processes that run.
type watcher struct {
	t        *testing.T
	recorder testrun.Recorder
	looks    int
}

func (w *watcher) Write(p []byte) (int, error) {
	w.looks++
	if list := testrun.Alive(w.recorder.Processes(w.t)); len(list) > 0 {
		w.t.Errorf("at %q the plugin processes %v run", p, list)
	}
	return len(p), nil
}

// TestPluginsEndBeforeTraining: when the first step is reported, every plugin process
// of the run has ended; so nothing that happens to a plugin later can matter. What
// happens to one between handing over its programs and its end is tested in
// host/train/assembly.
func TestPluginsEndBeforeTraining(t *testing.T) {
	recorder := testrun.NewRecorder(t)
	w := &watcher{t: t, recorder: recorder}
	testrun.Train(t, testrun.Config(t), train.Options{Finder: recorder.Finder, Console: w})
	if n := len(recorder.Processes(t)); n != 2 || w.looks < 20 {
		t.Errorf("%d plugin processes started, want quest and adamw; looked %d times, want at least once a step", n, w.looks)
	}
}

// TestPluginsEndWithTheHost kills a host that waits for a plugin to start, and hosts
// at random moments of their start.
func TestPluginsEndWithTheHost(t *testing.T) {
	effort.Long(t, "starts and kills processes")
	t.Run("while a plugin hangs", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("a plugin that does not watch its host ends with it only on Linux")
		}
		recorder := testrun.NewRecorder(t)
		recorder.Script(t, "quest", "exec sleep 600")
		h := startHost(t, testrun.Config(t), recorder.Finder)
		h.await(t, "both plugins", func() bool { return len(recorder.Processes(t)) == 2 })
		if n := len(testrun.Alive(recorder.Processes(t))); n != 2 {
			t.Errorf("%d plugin processes run, want 2", n)
		}
		h.kill(t)
		testrun.AwaitDeath(t, recorder.Processes(t), 2*time.Second)
	})
	t.Run("at random", func(t *testing.T) {
		random := rand.New(rand.NewPCG(5, 6))
		recorder := testrun.NewRecorder(t)
		for range 6 {
			started := len(recorder.Processes(t))
			h := startHost(t, testrun.Config(t), recorder.Finder)
			h.await(t, "a plugin", func() bool { return len(recorder.Processes(t)) > started })
			time.Sleep(time.Duration(random.Int64N(int64(60 * time.Millisecond))))
			h.kill(t)
			testrun.AwaitDeath(t, recorder.Processes(t), 2*time.Second)
		}
	})
}
