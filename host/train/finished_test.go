package train_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
)

// TestFinishedStaysFinished: a finished run that is resumed is evaluated again; if that fails, or is interrupted, the
// summary of the finished run stays.
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
		if _, err := train.Run(ctx, testrun.Again(t, cfg), train.Options{Resume: true, Finder: testrun.Finder(t), Logger: logger}); err == nil {
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

// onMessage is a log that calls a function when a message is in a line of it.
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

// TestAskedWhileItLoads: a request to stop that comes while a run reads its checkpoint is obeyed.
func TestAskedWhileItLoads(t *testing.T) {
	effort.Long(t, "starts processes")
	cfg := testrun.Config(t, "train.steps=2000", "train.eval_every=0")
	runParts(t, cfg, 2)
	ask := func() {
		if err := rundir.At(cfg.Train.Out).Ask(rundir.Stop); err != nil {
			t.Error(err)
		}
	}
	logger := hclog.New(&hclog.LoggerOptions{Output: onMessage{"resuming", ask}, Level: hclog.Info})
	_, err := train.Run(t.Context(), testrun.Again(t, cfg), train.Options{Resume: true, Finder: testrun.Finder(t), Logger: logger})
	if err == nil || !strings.Contains(err.Error(), train.ErrAsked.Error()) {
		t.Errorf("the run ended with %v", err)
	}
}

// TestMixtureMoves: a run goes on when the files of its mixture have other paths; with others it does not.
func TestMixtureMoves(t *testing.T) {
	first, validation := testrun.Dataset(t)
	text := strings.Replace(testrun.ConfigText("TRAIN", validation, filepath.Join(t.TempDir(), "run")), `train = "TRAIN"`,
		fmt.Sprintf("mixture = [{path = %q, weight = 1.0}, {path = %q, weight = 2.0}]", first, validation), 1)
	cfg := testrun.Parse(t, text)
	runParts(t, cfg, 4)
	moved := filepath.Join(t.TempDir(), "elsewhere.tokens")
	if err := os.Rename(first, moved); err != nil {
		t.Fatal(err)
	}
	again := testrun.Parse(t, strings.Replace(text, first, moved, 1))
	testrun.Train(t, again, train.Options{Resume: true})
	other := testrun.Parse(t, strings.Replace(text, first, validation, 1), "train.steps=21")
	if _, err := train.Run(t.Context(), other, train.Options{Resume: true, Finder: testrun.Finder(t)}); err == nil {
		t.Error("a run goes on with other data")
	}
}
