package testrun

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/vfs"
)

// Still are overrides of a run in full precision whose steps change no bit of a parameter.
var Still = []string{`quantizer.plugin="none"`, "train.weight_decay=0", "schedule.rate=1e-30", "train.steps=1", "train.batch=2"}

// FromHub is a run that starts from a copy of a checkpoint of the hub, and the directory of the copy.
func FromHub(t testing.TB, overrides ...string) (cfg *config.Config, dir string) {
	t.Helper()
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "checkpoint")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(top, "host/model/huggingface/testdata/llama32"))); err != nil {
		t.Fatal(err)
	}
	c, err := huggingface.ReadConfig(vfs.At(dir), 0)
	if err != nil {
		t.Fatal(err)
	}
	sizes := []string{fmt.Sprintf("model.init=%q", dir), fmt.Sprintf("model.layers=%d", c.Settings.Layers), fmt.Sprintf("model.width=%d", c.Settings.Width), fmt.Sprintf("model.heads=%d", c.Settings.Heads),
		fmt.Sprintf("model.hidden=%d", c.Settings.Hidden)}
	return Config(t, slices.Concat(sizes, Still, overrides)...), dir
}

// Loss is the loss of a model on a file, and the number of targets in it.
func Loss(t testing.TB, dir string, o trained.Options) (float64, int64) {
	t.Helper()
	o.Finder = Finder(t)
	opened, err := trained.Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	loss, targets, err := opened.Evaluate(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return loss, targets
}
